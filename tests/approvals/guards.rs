//! No act is a way around another: what needs approval, what does not, and who may give it.

use serde_json::json;
use sqlx::Row as _;

use super::{Person, parked, refused, retry, stage};
use crate::support::{TestDb, verdict};

/// Every function that an operator may call and that names its actor, with what it must be given: name, arguments, whether a
/// second person can be asked for it, whether an approver can be named.
async fn acts(db: &TestDb) -> Vec<(String, String, bool, bool)> {
    let rows = sqlx::query(
        "SELECT p.proname::text, symphony.outbox_act_lane(p.proname::text) IS NOT NULL AS approvable, \
                'p_approver' = ANY (p.proargnames) AS names_approver, \
                (SELECT string_agg(format('%I => %s', a.name, CASE a.name \
                                       WHEN 'p_actor' THEN quote_literal('dana') WHEN 'p_reason' THEN quote_literal('r') \
                                       ELSE format('NULL::%s', format_type(a.type, NULL)) END), ', ') \
                   FROM unnest(p.proargnames[1:p.pronargs - p.pronargdefaults], p.proargtypes::oid[]) a(name, type) \
                  WHERE a.name IS NOT NULL) AS arguments \
           FROM pg_proc p \
          WHERE p.pronamespace = 'symphony'::regnamespace AND 'p_actor' = ANY (p.proargnames) \
            AND has_function_privilege('symphony_operator', p.oid, 'EXECUTE')",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    rows.iter()
        .map(|row| {
            (row.get(0), row.get("arguments"), row.get("approvable"), row.get("names_approver"))
        })
        .collect()
}

#[tokio::test]
async fn every_act_that_sends_settles_hides_or_loosens_needs_approval_and_nothing_else_does() {
    let (db, mut dana, _) = stage().await;
    let alone = [
        // Does what the act it names may.
        "do_outbox_act",
        "inquire_outbox",
        "park_outbox",
        "pause_app",
        "pause_event_lane",
        "pause_event_topic",
        "pause_payment_lane",
        "pause_payment_participant",
        "pause_payment_rail",
        "pause_trigger_lane",
        "request_outbox_approval",
        "reset_outbox_destination",
        "revoke_app_mail",
        "withdraw_outbox_request",
    ];
    let mut free = Vec::new();
    for (name, arguments, approvable, _) in acts(&db).await {
        let told = dana.ask(&format!("{name}({arguments})")).await;
        let needs_approval =
            told.as_ref().is_err_and(|told| told.starts_with("P7008 this act needs"));
        assert_eq!(needs_approval, approvable, "{name}({arguments}): {told:?}");
        if !needs_approval {
            free.push(name);
        }
    }
    free.sort();
    assert_eq!(free, alone, "whoever adds an act decides whether one person may do it alone");
}

#[tokio::test]
async fn no_act_takes_the_name_of_an_approver() {
    let db = TestDb::new().await;
    let mut both = Person::new(&db, "symphony_operator, symphony_approver").await;
    let mut seen = 0;
    for (name, arguments, _, _) in acts(&db).await.iter().filter(|act| act.3) {
        for approver in ["kim", "dana.", " Dana "] {
            let told = both.ask(&format!("{name}({arguments}, p_approver => '{approver}')")).await;
            assert!(
                refused(&told).starts_with("P7008 p_approver cannot be named"),
                "{name}: {told:?}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 12, "{seen} acts take p_approver");
}

#[tokio::test]
async fn an_approval_opens_no_door_for_what_follows_it_in_the_transaction() {
    let (db, mut dana, _) = stage().await;
    let (asked, other) = (parked(&db, "a").await, parked(&db, "b").await);
    let number = dana.request("resolve_outbox", &retry(asked)).await;
    let mut both = Person::new(&db, "symphony_operator, symphony_approver").await;
    for then in [
        format!("SELECT symphony.resolve_outbox('{other}', 'RETRY', 'dana', 'r')"),
        format!(
            "SELECT symphony.resolve_outbox('{other}', 'RETRY', 'dana', 'r', p_approver => 'kim')"
        ),
        "SELECT symphony.configure_payment_lane('dana', 'r', p_approval_required => false)"
            .to_owned(),
    ] {
        let told = both
            .transaction(&format!(
                "BEGIN; SELECT symphony.approve_outbox_request({number}, 'kim', 'x'); {then}; COMMIT"
            ))
            .await;
        assert!(told.unwrap_err().starts_with("P7008"), "{then}");
        both.transaction("ROLLBACK").await.unwrap();
    }
    // In one statement neither.
    let told = both
        .transaction(&format!(
            "SELECT symphony.approve_outbox_request({number}, 'kim', 'x'), symphony.resolve_outbox('{other}', 'RETRY', 'dana', 'r')"
        ))
        .await;
    assert!(told.unwrap_err().starts_with("P7008"));
    assert_eq!([db.state(asked).await, db.state(other).await], ["PARKED", "PARKED"]);
}

#[tokio::test]
async fn what_needs_approval_is_changed_by_two_people_in_either_direction() {
    let db = TestDb::new().await;
    let mut dana = Person::new(&db, "symphony_operator").await;
    let mut kim = Person::new(&db, "symphony_approver").await;
    for lane in ["payment", "event", "trigger"] {
        for required in [true, false] {
            let alone =
                format!("configure_{lane}_lane('dana', 'r', p_approval_required => {required})");
            for person in [&mut dana, &mut kim] {
                let told = person.ask(&alone).await;
                assert!(refused(&told).starts_with("P7008"), "{alone}: {told:?}");
            }
            let arguments = json!({"p_approval_required": required});
            let number = dana.request(&format!("configure_{lane}_lane"), &arguments).await;
            let answer = kim.approve(number).await.unwrap();
            assert_eq!(answer["answer"]["approval_required"], required, "{lane}");
            // To say what is so already changes nothing, and is allowed where the lane wants no approval.
            assert_eq!(dana.ask(&alone).await.is_ok(), !required, "{lane} {required}");
        }
    }
    // The executions of apps: to pause is free, anything beside it is not.
    db.require_approval("trigger").await;
    assert!(dana.ask("configure_trigger_lane('dana', 'r', p_paused => true)").await.is_ok());
    for change in
        ["p_paused => false", "p_paused => true, p_depth_max => 100", "p_keep_executions => false"]
    {
        let told = dana.ask(&format!("configure_trigger_lane('dana', 'r', {change})")).await;
        assert!(refused(&told).starts_with("P7008"), "{change}: {told:?}");
    }
}

#[tokio::test]
async fn only_members_of_symphony_approver_decide_and_they_need_no_other_role() {
    let (db, mut dana, mut kim) = stage().await;
    let item = parked(&db, "i").await;
    let number = dana.request("resolve_outbox", &retry(item)).await;
    for role in ["ingest", "executor", "operator", "readonly", "auditor", "auth", "consumer"] {
        for decision in ["approve", "reject"] {
            let call = format!("SELECT symphony.{decision}_outbox_request({number}, 'kim', 'x')");
            assert_eq!(verdict(&db, &format!("symphony_{role}"), &call).await, "42501", "{role}");
        }
        if role != "operator" {
            let call = format!("SELECT symphony.withdraw_outbox_request({number}, 'dana', 'x')");
            assert_eq!(verdict(&db, &format!("symphony_{role}"), &call).await, "42501", "{role}");
            let call =
                "SELECT symphony.request_outbox_approval('resume_payment_lane', '{}', 'dana', 'x')";
            assert_eq!(verdict(&db, &format!("symphony_{role}"), call).await, "42501", "{role}");
        }
    }
    for reader in ["operator", "approver", "auditor"] {
        let read = "SELECT * FROM symphony.outbox_approvals";
        assert_eq!(verdict(&db, &format!("symphony_{reader}"), read).await, "OK", "{reader}");
    }
    let hidden = "SELECT arguments FROM symphony.outbox_approvals";
    assert_eq!(verdict(&db, "symphony_readonly", hidden).await, "42501");
    kim.approve(number).await.unwrap();
    assert_eq!(db.state(item).await, "DUE");
}

#[tokio::test]
async fn the_acts_of_events_and_apps_are_approved_and_carried_out_as_payments_are() {
    let (db, mut dana, mut kim) = stage().await;
    let manifest = crate::triggers::manifest(&[("t", "kv", "*")]);
    let number = dana.request("push_app", &json!({"p_app": "shop", "p_manifest": manifest})).await;
    assert_eq!(db.count("apps").await, 0, "a request makes no app");
    kim.approve(number).await.unwrap();
    assert_eq!(db.count("apps").await, 1);
    let pushed_by: String = db
        .one("SELECT p.kind || ' ' || p.name FROM triggers t JOIN principals p ON p.principal_id = t.registered_by_principal")
        .await;
    let asked_by: String =
        db.one("SELECT 'login ' || session_role FROM outbox_approval_requests LIMIT 1").await;
    assert_eq!(pushed_by, asked_by, "who asked has pushed it, not who approved");
    dana.ask("pause_app('shop', 'dana', 'r')").await.unwrap();
    let number = dana.request("resume_app", &json!({"p_app": "shop"})).await;
    kim.approve(number).await.unwrap();
    let number = dana.request("delete_app", &json!({"p_app": "shop"})).await;
    kim.approve(number).await.unwrap();
    assert_eq!(db.count("apps").await, 0);
    let number = dana
        .request("configure_event_lane", &json!({"p_denied_payload_keys": ["shoe_size"]}))
        .await;
    kim.approve(number).await.unwrap();
    let keys: Vec<String> = db.one("SELECT denied_payload_keys FROM event_outbox_settings").await;
    assert_eq!(keys, ["shoe_size"]);
    let number = dana.request("configure_event_lane", &json!({"p_denied_payload_keys": []})).await;
    kim.approve(number).await.unwrap();
    let keys: Vec<String> = db.one("SELECT denied_payload_keys FROM event_outbox_settings").await;
    assert!(keys.is_empty(), "an empty list is a list");
    let told: Vec<String> = db
        .one("SELECT array_agg(event_type || ' ' || coalesce(approver, '-') ORDER BY event_no) FROM trigger_outbox_events \
               WHERE event_type NOT LIKE 'APPROVAL%'")
        .await;
    assert_eq!(told, ["PUSHED kim", "PAUSED -", "RESUMED kim", "DELETED kim"]);
    assert_eq!(db.count("trigger_outbox_events WHERE event_type = 'APPROVAL_GIVEN'").await, 3);
    assert_eq!(db.count("event_outbox_events WHERE event_type = 'APPROVAL_GIVEN'").await, 2);
}

#[tokio::test]
async fn every_act_that_can_be_approved_is_called_with_all_that_it_takes() {
    let db = TestDb::new().await;
    let left_out: Vec<String> = db
        .one(
            "SELECT coalesce(array_agg(p.proname || ' ' || a.name), '{}') FROM pg_proc p \
              CROSS JOIN LATERAL unnest(p.proargnames[1:p.pronargs]) a(name) \
              CROSS JOIN LATERAL (SELECT split_part(split_part(f.prosrc, 'symphony.' || p.proname || '(', 2), ' a);', 1) AS text \
                                    FROM pg_proc f WHERE f.proname = 'perform_outbox_act' \
                                     AND f.pronamespace = p.pronamespace) called \
              WHERE p.pronamespace = 'symphony'::regnamespace AND symphony.outbox_act_lane(p.proname::text) IS NOT NULL \
                AND position(a.name || ' => ' IN called.text) = 0",
        )
        .await;
    assert_eq!(left_out, Vec::<String>::new());
    let approvable: i64 = db
        .one("SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'symphony'::regnamespace AND symphony.outbox_act_lane(p.proname::text) IS NOT NULL")
        .await;
    assert_eq!(approvable, 33, "all that outbox_act_lane names are there");
}
