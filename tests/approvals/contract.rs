//! The life of a request: asked for, decided once, carried out as it was asked for.

use std::collections::BTreeSet;

use serde_json::json;
use symphony::domain::{Act, Resolution};

use super::{Person, parked, refused, retry, stage};
use crate::support::{TestDb, act, code, pooler, until, verdict};

#[tokio::test]
async fn the_login_that_asked_cannot_approve_whatever_names_it_gives() {
    let (db, _, mut kim) = stage().await;
    let item = parked(&db, "i").await;
    let mut both = Person::new(&db, "symphony_operator, symphony_approver").await;
    let number = both.request("resolve_outbox", &retry(item)).await;
    for name in ["kim", "dana", "dana.", "Dana ", "DANA", "d\u{430}na", &both.login.clone()] {
        let answer =
            both.ask(&format!("approve_outbox_request({number}, '{name}', 'it is fine')")).await;
        assert!(refused(&answer).starts_with("P7008 request"), "{name}: {answer:?}");
    }
    // Nor by acting as the role, which leaves the login what it is.
    let told = both
        .transaction(&format!(
            "BEGIN; SET LOCAL ROLE symphony_approver; SELECT symphony.approve_outbox_request({number}, 'kim', 'x'); COMMIT"
        ))
        .await;
    assert!(told.unwrap_err().starts_with("P7008"));
    both.transaction("ROLLBACK").await.unwrap();
    assert_eq!(db.state(item).await, "PARKED");
    assert_eq!(db.count("outbox_approval_decisions").await, 0);
    // Another login with the maker's name is refused too: the ledger must name two people.
    let answer = kim.ask(&format!("approve_outbox_request({number}, ' Dana', 'x')")).await;
    assert!(refused(&answer).starts_with("P7008 p_actor is who asked"), "{answer:?}");
    kim.approve(number).await.unwrap();
    assert_eq!(db.state(item).await, "DUE");
}

#[tokio::test]
async fn who_asked_and_who_agreed_are_in_the_ledger_with_their_logins() {
    let (db, mut dana, mut kim) = stage().await;
    let item = parked(&db, "i").await;
    let number = dana.request("resolve_outbox", &retry(item)).await;
    assert_eq!(db.state(item).await, "PARKED", "asking changes nothing");
    let answer = kim.approve(number).await.unwrap();
    assert_eq!(
        (&answer["state"], &answer["answer"]["state_after"]),
        (&json!("APPROVED"), &json!("PENDING"))
    );
    let told: Vec<String> = db
        .one(&format!(
            "SELECT array_agg(concat_ws(' ', event_type, actor, approver, session_role, reason, details->>'asked_from_login') \
                    ORDER BY event_no) FROM payment_outbox_events WHERE outbox_id = '{item}' AND event_type <> 'PARKED'"
        ))
        .await;
    let (maker, agreed) = (&dana.login, &kim.login);
    assert_eq!(
        told,
        [
            format!("APPROVAL_REQUESTED dana {maker} it must be"),
            format!("APPROVAL_GIVEN kim {agreed} I have looked {maker}"),
            format!("RESOLVED dana kim {agreed} it must be"),
        ]
    );
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn of_racing_approvals_one_carries_it_out() {
    let (db, mut dana, _) = stage().await;
    let item = db
        .ended(
            &crate::support::payment("i", "p", "ach"),
            "REFUSED_BY_RAIL",
            symphony::domain::Outcome::Failed,
        )
        .await;
    let number = dana.request("redrive_outbox", &json!({"p_outbox_id": item})).await;
    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut one = Person::new(&db, "symphony_approver").await;
        racing.spawn(async move { one.approve(number).await });
    }
    let answers = racing.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    let others: BTreeSet<_> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
    assert_eq!(
        others.into_iter().collect::<Vec<_>>(),
        [&format!("P7006 request {number} is APPROVED already")]
    );
    assert_eq!(db.count("payment_outbox_instructions WHERE redrive_no = 1").await, 1);
    assert_eq!(db.count("outbox_approved_acts").await, 0);
}

#[tokio::test]
async fn a_request_is_decided_once_and_only_while_it_waits() {
    let (db, mut dana, mut kim) = stage().await;
    let item = parked(&db, "i").await;
    let arguments = retry(item);
    let rejected = dana.request("resolve_outbox", &arguments).await;
    kim.ask(&format!("reject_outbox_request({rejected}, 'kim', 'ask the bank first')"))
        .await
        .unwrap();
    let withdrawn = dana.request("resolve_outbox", &arguments).await;
    let told = kim.ask(&format!("withdraw_outbox_request({withdrawn}, 'kim', 'not mine')")).await;
    assert!(refused(&told).starts_with("P7008"), "{told:?}");
    dana.ask(&format!("withdraw_outbox_request({withdrawn}, 'dana', 'wrong one')")).await.unwrap();
    let call = format!("request_outbox_approval('resolve_outbox', '{arguments}', 'dana', 'r', 1)");
    let expired = dana.ask(&call).await.unwrap()["request_no"].as_i64().unwrap();
    until("it has expired", async || {
        db.count("outbox_approvals WHERE state = 'EXPIRED'").await == 1
    })
    .await;
    let approved = dana.request("resolve_outbox", &arguments).await;
    kim.approve(approved).await.unwrap();
    for (number, expected) in [
        (rejected, "is REJECTED already"),
        (withdrawn, "is WITHDRAWN already"),
        (expired, "expired at"),
        (approved, "is APPROVED already"),
    ] {
        for decision in ["approve", "reject"] {
            let told = kim.ask(&format!("{decision}_outbox_request({number}, 'kim', 'x')")).await;
            let told = refused(&told).to_owned();
            assert!(told.starts_with("P7006") && told.contains(expected), "{told}");
        }
    }
    assert!(refused(&kim.approve(99).await).starts_with("P7007"));
    let states: Vec<String> =
        db.one("SELECT array_agg(state ORDER BY request_no) FROM outbox_approvals").await;
    assert_eq!(states, ["REJECTED", "WITHDRAWN", "EXPIRED", "APPROVED"]);
    // By the ledger alone: what was asked for, and what became of it.
    let told = db.acts("payment_outbox_events").await;
    assert!(told.contains(&"APPROVAL_REFUSED kim ask the bank first".to_owned()), "{told:?}");
    assert!(told.contains(&"APPROVAL_WITHDRAWN dana wrong one".to_owned()), "{told:?}");
}

#[tokio::test]
async fn the_act_meets_the_checks_of_the_moment_it_is_approved() {
    let (db, mut dana, mut kim) = stage().await;
    let item = parked(&db, "i").await;
    let retried = dana.request("resolve_outbox", &retry(item)).await;
    let failed = json!({"p_outbox_id": item, "p_resolution": "FAILED"});
    let failed = dana.request("resolve_outbox", &failed).await;
    kim.approve(failed).await.unwrap();
    let told = kim.approve(retried).await;
    assert!(refused(&told).starts_with("P7006 item"), "it has ended: {told:?}");
    assert_eq!(db.ledger(item).await, ["1 FAILED"]);
    let state: String =
        db.one(&format!("SELECT state FROM outbox_approvals WHERE request_no = {retried}")).await;
    assert_eq!(state, "WAITING", "what was refused is not decided");
    // What would be refused anyway is not even asked for: neither what has ended, nor what the rail never answered.
    let unknown = db
        .ended(
            &crate::support::payment("u", "p", "ach"),
            "TIMEOUT",
            symphony::domain::Outcome::Unknown,
        )
        .await;
    for (despite, expected) in [(false, "P7009 p_despite_unknown is missing"), (true, "")] {
        let arguments =
            json!({"p_outbox_id": unknown, "p_resolution": "FAILED", "p_despite_unknown": despite});
        let call = format!(
            "request_outbox_approval('resolve_outbox', '{arguments}', 'dana', 'r', 60, true)"
        );
        let told = dana.ask(&call).await;
        assert_eq!(
            told.as_ref().err().is_some_and(|told| told.starts_with(expected)),
            !despite,
            "{told:?}"
        );
    }
    let told = dana
        .ask(&format!("request_outbox_approval('resolve_outbox', '{}', 'dana', 'r')", retry(item)))
        .await;
    assert!(refused(&told).starts_with("P7006"), "{told:?}");
}

#[tokio::test]
async fn of_many_at_once_what_is_refused_stays_and_the_rest_is_done() {
    let (db, mut dana, mut kim) = stage().await;
    let items = [parked(&db, "a").await, parked(&db, "b").await, parked(&db, "c").await];
    let number = dana.request("resolve_outbox", &json!(items.map(retry))).await;
    // Meanwhile one is gone.
    let gone = dana.request("release_outbox", &json!({"p_outbox_id": items[1]})).await;
    kim.approve(gone).await.unwrap();
    let dry =
        kim.ask(&format!("approve_outbox_request({number}, 'kim', 'x', true)")).await.unwrap();
    assert_eq!((dry["dry_run"].as_bool(), db.state(items[0]).await), (Some(true), "PARKED".into()));
    let answer = kim.approve(number).await.unwrap();
    let told: Vec<_> =
        answer["answer"].as_array().unwrap().iter().map(|a| a["refused"].clone()).collect();
    assert_eq!(told, [json!(null), json!("P7006"), json!(null)]);
    assert_eq!([db.state(items[0]).await, db.state(items[2]).await], ["DUE", "DUE"]);
    // If none is left, it is no approval.
    let number =
        dana.request("release_outbox", &json!([{"p_outbox_id": parked(&db, "d").await}])).await;
    db.sql("UPDATE payment_outbox_pending SET hold = NULL").await;
    assert!(refused(&kim.approve(number).await).starts_with("P7006 none of what request"));
    for (arguments, expected) in
        [(json!([]), "P7005 the number of acts"), (json!([1]), "P7005 p_arguments must be")]
    {
        let call = format!("request_outbox_approval('release_outbox', '{arguments}', 'dana', 'r')");
        let told = dana.ask(&call).await;
        assert!(refused(&told).starts_with(expected), "{told:?}");
    }
}

#[tokio::test]
async fn an_argument_that_nobody_knows_is_refused_and_none_of_the_requests_own_can_be_given() {
    let (db, mut dana, _) = stage().await;
    let item = parked(&db, "i").await;
    for (function, arguments, expected) in [
        (
            "resolve_outbox",
            json!({"p_outbox_id": item, "p_resolution": "RETRY", "p_approver": "kim"}),
            "P7005 p_arguments has 'p_approver'",
        ),
        (
            "resolve_outbox",
            json!({"p_outbox_id": item, "p_resolution": "RETRY", "p_dry_run": false}),
            "P7005 p_arguments has 'p_dry_run'",
        ),
        (
            "resolve_outbox",
            json!({"p_outbox_id": item, "p_resolution": "RETRY", "p_reson": "x"}),
            "P7005 p_arguments has 'p_reson'",
        ),
        ("resolve_outbox", json!({"p_outbox_id": item}), "P7005 p_arguments lacks p_resolution"),
        (
            "resolve_outbox",
            json!({"p_outbox_id": "x", "p_resolution": "RETRY"}),
            "P7005 p_arguments: a value",
        ),
        ("resolve_outbox", json!("x"), "P7005 p_arguments must be an object"),
        ("resolve_outbox", json!({"p_outbox_id": item, "p_resolution": "NONE"}), "P7003"),
        ("approve_outbox_request", json!({"p_request_no": 1}), "P7005 p_act"),
        ("pg_sleep", json!({}), "P7005 p_act"),
        ("configure_event_lane", json!({"p_denied_payload_keys": "x"}), "P7005 p_arguments"),
    ] {
        let call = format!("request_outbox_approval('{function}', '{arguments}', 'dana', 'r')");
        let told = dana.ask(&call).await;
        assert!(refused(&told).starts_with(expected), "{function} {arguments}: {told:?}");
    }
    for (rest, expected) in [
        ("' ', 'r'", "P7005 p_actor is blank"),
        ("'dana', ' '", "P7005 p_reason is blank"),
        ("'dana', 'r', 0", "P7005 p_expires_in_seconds"),
        ("'dana', 'r', 604801", "P7005 p_expires_in_seconds"),
    ] {
        let call = format!("request_outbox_approval('resolve_outbox', '{}', {rest})", retry(item));
        let told = dana.ask(&call).await;
        assert!(refused(&told).starts_with(expected), "{rest}: {told:?}");
    }
    assert_eq!(db.count("outbox_approval_requests").await, 0);
}

#[tokio::test]
async fn a_dry_run_asks_nobody_and_approves_nothing() {
    let (db, mut dana, mut kim) = stage().await;
    let item = parked(&db, "i").await;
    let asked = dana
        .ask(&format!(
            "request_outbox_approval('resolve_outbox', '{}', 'dana', 'r', 60, true)",
            retry(item)
        ))
        .await
        .unwrap();
    assert_eq!((&asked["request_no"], &asked["dry_run"]), (&json!(null), &json!(true)));
    assert_eq!(asked["preview"]["state_after"], "PENDING");
    // What has no dry run of its own is done and undone.
    let fifo = json!({"p_rail_type": "ach", "p_on_failed": "continue"});
    let number = dana.request("configure_payment_rail", &fifo).await;
    let would =
        kim.ask(&format!("approve_outbox_request({number}, 'kim', 'x', true)")).await.unwrap();
    assert_eq!(would["answer"]["on_failed"], "continue");
    assert_eq!(db.count("payment_outbox_rails WHERE on_failed = 'continue'").await, 0);
    assert_eq!(db.count("outbox_approval_decisions").await, 0);
    assert_eq!(db.count("outbox_approved_acts").await, 0);
    // The dry run of an act needs no approval, and says what it would change.
    let operator = db.database.operator();
    let dry = Act { dry_run: true, ..act() };
    let would = operator.resolve_payment(item, &Resolution::Retry, &dry).await.unwrap();
    assert_eq!(would.answer.state_after, "PENDING");
    assert_eq!(code(operator.resolve_payment(item, &Resolution::Retry, &act()).await), "P7008");
}

#[tokio::test]
async fn requests_and_decisions_are_never_rewritten() {
    let (db, mut dana, mut kim) = stage().await;
    let number = dana.request("resolve_outbox", &retry(parked(&db, "i").await)).await;
    kim.approve(number).await.unwrap();
    for table in ["outbox_approval_requests", "outbox_approval_decisions"] {
        for statement in [
            format!("UPDATE symphony.{table} SET reason = 'x'"),
            format!("DELETE FROM symphony.{table}"),
            format!("TRUNCATE symphony.{table}"),
        ] {
            assert_eq!(verdict(&db, "symphony_control", &statement).await, "P0001", "{statement}");
            for role in ["symphony_operator", "symphony_approver", "symphony_auditor"] {
                assert_eq!(verdict(&db, role, &statement).await, "42501", "{role}: {statement}");
            }
        }
    }
    let plant = "INSERT INTO symphony.outbox_approved_acts VALUES (pg_current_xact_id(), 'kim')";
    for role in ["symphony_operator", "symphony_approver"] {
        assert_eq!(verdict(&db, role, plant).await, "42501", "{role}");
    }
}

#[tokio::test]
async fn approvals_work_through_a_transaction_pooler_and_the_own_login_is_still_refused() {
    if pooler::found().is_none() {
        return;
    }
    let (db, dana, kim) = stage().await;
    let item = parked(&db, "i").await;
    let logins = [dana.login.as_str(), kim.login.as_str()];
    let pooler = pooler::Pooler::start(db.options.get_port(), &logins).await;
    db.sql(&format!("GRANT symphony_approver TO {}", dana.login)).await;
    let mut dana = Person::at(&dana.login, &pooler.before(&dana.options)).await;
    let mut kim = Person::at(&kim.login, &pooler.before(&kim.options)).await;
    let number = dana.request("resolve_outbox", &retry(item)).await;
    assert!(refused(&dana.approve(number).await).starts_with("P7008"));
    kim.approve(number).await.unwrap();
    assert_eq!(db.state(item).await, "DUE");
}

#[tokio::test]
async fn an_installation_in_a_schema_of_another_name_approves_too() {
    let db = TestDb::new().await;
    let schema: symphony::db::Schema = "billing".parse().unwrap();
    let options = symphony::db::migrate::Options { schema, ..Default::default() };
    symphony::db::migrate::migrate(&db.options, options).await.unwrap();
    let (dana, kim) =
        (Person::new(&db, "symphony_operator").await, Person::new(&db, "symphony_approver").await);
    let mut people = [dana, kim];
    let request = "SELECT request_no FROM billing.request_outbox_approval('configure_payment_lane', '{\"p_approval_required\": true}', 'dana', 'r')";
    people[0].transaction(request).await.unwrap();
    people[1]
        .transaction("SELECT * FROM billing.approve_outbox_request(1, 'kim', 'r')")
        .await
        .unwrap();
    assert!(db.one::<bool>("SELECT approval_required FROM billing.payment_outbox_settings").await);
    assert!(
        !db.one::<bool>("SELECT approval_required FROM symphony.payment_outbox_settings").await
    );
}
