//! What the API lists: nothing is left out between pages, nothing reads everything unasked, and many acts at once.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use symphony::db::ActCall;
use symphony::domain::{Outcome, Switch};

use super::Served;
use super::answers::LISTS;
use crate::console::Scene;
use crate::support::{TestDb, act};

/// Rows of payments that were read, by whatever way; sessions tell it when they end.
async fn rows_read(db: &TestDb) -> i64 {
    db.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user")
        .await;
    db.one("SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables WHERE relname = 'payment_outbox_instructions'")
        .await
}

/// The answer of a server that still has some of those sessions.
async fn answer(served: &Served, token: &str, line: &str) -> u16 {
    loop {
        let (status, _) = served.ask(token, line, &Value::Null).await;
        if status != 503 {
            return status;
        }
    }
}

#[tokio::test]
async fn a_payment_that_is_not_there_is_missed_without_reading_a_whole_table() {
    let served = Served::new().await;
    let reader = served.token("eve", "read").await;
    served.db.enqueue_stream("acme", "ach", 2_000).await;
    served.db.sql("ANALYZE").await;
    let line = format!("GET /v1/payments/{}", uuid::Uuid::new_v4());
    let before = rows_read(&served.db).await;
    for _ in 0..3 {
        assert_eq!(answer(&served, &reader, &line).await, 404);
    }
    let after = rows_read(&served.db).await;
    assert!(after - before < 100, "{} rows were read for three misses", after - before);
    // On request it does, and so finds what only a rail's key names.
    assert_eq!(answer(&served, &reader, &format!("{line}?everywhere=true")).await, 404);
    let everywhere = rows_read(&served.db).await - after;
    assert!(everywhere >= 2_000, "that looks at every payment, and not at {everywhere}");
    let key: String = served
        .db
        .one("SELECT payment_rail_key(outbox_id)::text FROM payment_outbox_instructions LIMIT 1")
        .await;
    assert_eq!(answer(&served, &reader, &format!("GET /v1/payments/{key}")).await, 404);
    let found = answer(&served, &reader, &format!("GET /v1/payments/{key}?everywhere=true")).await;
    assert_eq!(found, 200);
}

#[tokio::test]
async fn every_list_is_read_by_pages_that_leave_nothing_out() {
    let scene = Scene::new().await;
    let served = &scene.served;
    for item in [scene.parked, scene.failed] {
        served
            .db
            .sql(&format!(
                "INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, \
                        attempt_no, state, completed_at, worker_id) \
                 SELECT outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, 20, 'FAILED', now(), 'w' \
                   FROM payment_outbox_instructions i WHERE outbox_id = '{item}' \
                    AND NOT EXISTS (SELECT FROM payment_outbox_attempts a WHERE a.outbox_id = i.outbox_id AND a.state = 'FAILED'); \
                 INSERT INTO payment_outbox_events (event_type, outbox_id, worker_id, details) \
                 SELECT 'LATE_OUTCOME', '{item}', 'w', '{{\"state\": \"DISPATCHED\"}}' FROM generate_series(1, 2)"
            ))
            .await;
    }
    served.db.kv_set("shop", "b", &json!({"b": 1})).await;
    served.db.sql("INSERT INTO apps (name) VALUES ('stall')").await;
    let resume = ActCall::resume(&Switch::Payments);
    served.db.database.operator().request_approval(&resume, &act(), 3_600).await.unwrap();
    served.db.enqueue_stream("other", "ach", 3).await;
    served.db.claim("w2", 3).await;
    served.db.claim_events("w2", 1).await;
    served.db.sql("UPDATE outbox_destinations SET reported_at = now() + INTERVAL '1 hour'").await;
    served.db.sql("INSERT INTO event_outbox_topics (topic) VALUES ('bus/a~b'), ('bus/c')").await;
    for switch in [Switch::Events, Switch::App("shop".to_owned()), Switch::Rail("a~b".to_owned())] {
        if let Switch::Rail(rail) = &switch {
            served.db.make_fifo(rail, "block").await;
        }
        served.db.database.operator().pause(&switch, &act()).await.unwrap();
    }
    let reader = served.token("eve", "read").await;
    for list in LISTS.iter().copied().chain(["/v1/participants/other/payments"]) {
        let (status, all) =
            served.ask(&reader, &format!("GET {list}?limit=1000"), &Value::Null).await;
        assert_eq!((status, &all["next"]), (200, &Value::Null), "{list}: {all}");
        let whole = rows_of(&all);
        assert!(whole.len() >= 2, "{list} has more than one page: {all}");
        let (mut seen, mut place) = (Vec::new(), String::new());
        loop {
            let line = format!("GET {list}?limit=1{place}");
            let (status, page) = served.ask(&reader, &line, &Value::Null).await;
            assert_eq!(status, 200, "{line}: {page}");
            seen.extend(rows_of(&page));
            let Some(next) = page["next"].as_str() else { break };
            let next: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
            let newest_first = ["audit", "payments", "approvals", "executions"];
            let newest_first = newest_first.iter().any(|end| list.ends_with(end));
            let name = if newest_first { "before" } else { "after" };
            place = format!("&{name}={next}");
            assert!(seen.len() <= whole.len(), "{list} does not end");
        }
        assert_eq!(seen, whole, "{list}");
        let wrong = format!("GET {list}?limit=1&nothing=1");
        served.refuses(&reader, &wrong, &Value::Null, 422, "P7005").await;
    }
    for list in LISTS {
        let ingest = served.token("shop", "ingest").await;
        served.refuses(&ingest, &format!("GET {list}"), &Value::Null, 403, "SCOPE_MISSING").await;
    }
}

/// Without what the clock changes between two requests.
fn rows_of(page: &Value) -> Vec<Value> {
    let mut rows = page["items"].as_array().unwrap().clone();
    for row in &mut rows {
        let row = row.as_object_mut().unwrap();
        for clock in ["silent_seconds", "live", "expired", "workers"] {
            row.remove(clock);
        }
    }
    rows
}

#[tokio::test]
async fn dead_letters_are_filtered_as_the_command_line_filters_them() {
    let scene = Scene::new().await;
    let served = &scene.served;
    let reader = served.token("eve", "operate").await;
    let listed = async |filter: &str| -> BTreeSet<String> {
        let line = format!("GET /v1/dead-letters/{filter}");
        let (status, page) = served.ask(&reader, &line, &Value::Null).await;
        assert_eq!(status, 200, "{page}");
        let letters = page["letters"].as_array().unwrap();
        let ids = letters.iter().map(|one| {
            let id = ["outbox_id", "event_id", "id"].iter().find_map(|name| one[name].as_str());
            id.unwrap().to_owned()
        });
        ids.collect()
    };
    let only = |id: String| BTreeSet::from([id]);
    let (parked, failed) = (scene.parked.to_string(), scene.failed.to_string());
    assert_eq!(listed("payments?state=PARKED").await, only(parked.clone()));
    assert_eq!(listed("payments?state=FAILED&rail=ach").await, only(failed.clone()));
    assert_eq!(listed("payments").await, BTreeSet::from([parked, failed]));
    assert!(listed("payments?rail=none").await.is_empty());
    assert!(listed("payments?participant=none").await.is_empty());
    assert!(listed("payments?until=2020-01-01T00:00:00Z").await.is_empty());
    assert_eq!(listed("payments?since=2020-01-01T00:00:00Z&newest=true").await.len(), 2);
    assert_eq!(listed("triggers?app=shop&code=BROKEN").await, only(scene.execution.to_string()));
    assert!(listed("triggers?app=none").await.is_empty());
    assert!(listed("events?topic=none").await.is_empty());
    for wrong in ["payments?state=DONE", "payments?topic=t", "events?rail=r", "triggers?since=now"]
    {
        let line = format!("GET /v1/dead-letters/{wrong}");
        served.refuses(&reader, &line, &Value::Null, 422, "P7005").await;
    }
}

#[tokio::test]
async fn many_acts_at_once_answer_one_by_one_and_never_pass_over_an_unknown_outcome() {
    let served = Served::new().await;
    let dana = served.token("dana", "operate").await;
    let mut failed = Vec::new();
    for n in 0..3 {
        let request = crate::support::payment(&format!("inv-{n}"), "acme", "ach");
        failed.push(served.db.ended(&request, "REFUSED", Outcome::Failed).await);
    }
    let unknown = served
        .db
        .ended(&crate::support::payment("inv-9", "acme", "ach"), "TIMEOUT", Outcome::Unknown)
        .await;
    let line = "POST /v1/acts/redrive_outbox";
    let mut many = json!({
        "arguments": failed[..2].iter().chain([&unknown]).map(|id| json!({"p_outbox_id": id})).collect::<Vec<_>>(),
        "reason": "the bank is back", "dry_run": true,
    });
    let each = |answer: &Value| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| item["state"].as_str().unwrap().to_owned()).collect()
    };
    let (status, would) = served.ask(&dana, line, &many).await;
    assert_eq!(
        (status, each(&would)),
        (200, ["DRY_RUN", "DRY_RUN", "REFUSED"].map(str::to_owned).to_vec()),
        "{would}"
    );
    assert_eq!(served.db.count("payment_outbox_instructions WHERE redrive_no > 0").await, 0);
    many["dry_run"] = json!(false);
    let (status, done) = served.ask(&dana, line, &many).await;
    assert_eq!(
        (status, each(&done)),
        (200, ["DONE", "DONE", "REFUSED"].map(str::to_owned).to_vec()),
        "{done}"
    );
    assert_eq!(served.db.count("payment_outbox_instructions WHERE redrive_no > 0").await, 2);
    assert_eq!(done["items"][2]["code"], "P7006", "{done}");
    assert_eq!(done["items"][0]["arguments"]["p_outbox_id"], failed[0].to_string());

    // Where a second person must approve, one request is for all of them.
    served.db.require_approval("payment").await;
    many["arguments"] = json!([{"p_outbox_id": failed[2]}, {"p_outbox_id": failed[0]}]);
    let (status, asked) = served.ask(&dana, line, &many).await;
    assert_eq!((status, &asked["state"]), (202, &json!("WAITING")), "{asked}");
    assert_eq!(each(&asked), ["WAITING", "REFUSED"], "{asked}");
    let kim = served.token("kim", "approve").await;
    let approve = format!("POST /v1/approvals/{}/approve", asked["request_no"]);
    assert_eq!(served.ask(&kim, &approve, &json!({"reason": "seen"})).await.0, 200);
    assert_eq!(served.db.count("payment_outbox_instructions WHERE redrive_no > 0").await, 3);

    let despite = json!({"p_outbox_id": unknown, "p_despite_unknown": true});
    let too_many: Vec<Value> = (0..101).map(|_| json!({"p_outbox_id": unknown})).collect();
    for wrong in [json!([]), json!(too_many), json!([1]), json!([despite]), json!("x")] {
        let body = json!({"arguments": wrong, "reason": "r"});
        served.refuses(&dana, line, &body, 422, "P7005").await;
    }
}

#[tokio::test]
async fn the_ledger_and_the_pages_name_the_token_that_acted() {
    let served = Served::new().await;
    let dana = served.token("dana", "operate").await;
    let kim = served.token("kim", "approve").await;
    let pause = json!({"arguments": {}, "reason": "r"});
    served.ask(&dana, "POST /v1/acts/pause_payment_lane", &pause).await;
    let item = served.db.enqueue(&crate::support::payment("inv-1", "acme", "ach")).await.outbox_id;
    let park = json!({"arguments": {"p_outbox_id": item}, "reason": "r"});
    assert_eq!(served.ask(&dana, "POST /v1/acts/park_outbox", &park).await.0, 200);
    served.db.require_approval("payment").await;
    assert_eq!(served.ask(&dana, "POST /v1/acts/release_outbox", &park).await.0, 202);
    let approve = json!({"reason": "seen"});
    assert_eq!(served.ask(&kim, "POST /v1/approvals/1/approve", &approve).await.0, 200);
    let told: Vec<String> = served
        .db
        .one(
            "SELECT array_agg(concat_ws(' ', e.event_type, e.actor, e.details->>'token', e.details->>'approver_token') ORDER BY e.event_no) \
               FROM payment_outbox_events e JOIN api_tokens t ON t.token_id::text = e.details->>'token_id' AND t.person = e.actor",
        )
        .await;
    let expected = [
        "PAUSED dana danas",
        "PARKED dana danas",
        "APPROVAL_REQUESTED dana danas",
        "APPROVAL_GIVEN kim kims",
        "RELEASED dana danas kims",
    ];
    assert_eq!(told, expected);
    let browser = crate::console::Browser::of(&served, "ann", "read").await;
    let audit = browser.get("/console/audit").await.body;
    assert!(audit.contains("with token danas") && audit.contains("with token kims"), "{audit}");
    let request = browser.get("/console/approvals/1").await.body;
    assert!(request.contains("with token danas") && request.contains("with token kims"));
    // Without a token nothing is said of one.
    served.db.database.operator().pause(&Switch::Events, &act()).await.unwrap();
    let said: String = served.db.one("SELECT details::text FROM event_outbox_events LIMIT 1").await;
    assert!(!said.contains("token"), "{said}");
}

#[tokio::test]
async fn a_wide_tree_is_shown_in_part_and_says_how_much_is_left_out() {
    let served = Served::new().await;
    let reader = served.token("ann", "audit").await;
    served.db.push("shop", &crate::triggers::manifest(&[("t", "kv", "*")])).await;
    served.db.kv_set("shop", "a", &json!({"canary": 1})).await;
    let root = served.db.claim_item("w").await;
    served.db.done("w", &root, json!([])).await;
    served
        .db
        .sql(&format!(
            "INSERT INTO trigger_outbox_executions (id, app_id, app_name, source_kind, parent_execution_id, root_execution_id, trigger_depth, \
                    payload, state, attempts, created_at) \
             SELECT uuidv7(), e.app_id, e.app_name, 'kv', e.id, e.id, 1, '{{\"canary\": 1}}', 'DISPATCHED', 1, clock_timestamp() \
               FROM trigger_outbox_executions e, generate_series(1, 700) WHERE e.id = '{}'",
            root.id
        ))
        .await;
    let (status, tree) =
        served.ask(&reader, &format!("GET /v1/executions/{}/tree", root.id), &Value::Null).await;
    let shown = tree["executions"].as_array().unwrap();
    assert_eq!((status, shown.len(), &tree["left_out"]), (200, 500, &json!(201)));
    assert_eq!(shown[0]["id"], root.id.to_string(), "from the first on");
    let (_, list) = served.ask(&reader, "GET /v1/executions?limit=1000", &Value::Null).await;
    for text in [tree.to_string(), list.to_string()] {
        assert!(!text.contains("canary"), "lists have no payloads");
    }
    let (_, one) =
        served.ask(&reader, &format!("GET /v1/executions/{}", root.id), &Value::Null).await;
    assert!(one.to_string().contains("canary"), "one execution has its own: {one}");
    let browser = crate::console::Browser::of(&served, "eve", "read").await;
    let page = browser.get(&format!("/console/executions/{}", root.id)).await.body;
    assert!(page.contains("201 executions of this tree, the latest, are left out"), "{page}");
}

#[tokio::test]
async fn apps_are_listed_by_pages() {
    let served = Served::new().await;
    let reader = served.token("eve", "read").await;
    served
        .db
        .sql("INSERT INTO apps (name) SELECT 'app-' || n FROM generate_series(100, 220) n")
        .await;
    let (_, first) = served.ask(&reader, "GET /v1/apps", &Value::Null).await;
    let rows = first["items"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[49]["name"]), (50, &json!("app-149")));
    assert_eq!(first["next"], "app-149");
    let (_, last) =
        served.ask(&reader, "GET /v1/apps?after=app-149&limit=1000", &Value::Null).await;
    let rows = last["items"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["name"]), (71, &json!("app-150")));
    let browser = crate::console::Browser::of(&served, "ann", "read").await;
    let page = browser.get("/console/apps").await.body;
    assert!(page.contains("/console/apps?after=app%2D149") && !page.contains("app-150"), "{page}");
    let second = browser.get("/console/apps?after=app%2D149").await.body;
    assert!(second.contains("app-150") && !second.contains("app-149<"), "{second}");
}

#[tokio::test]
async fn an_app_is_shown_with_its_parts_and_versions() {
    let served = Served::new().await;
    let reader = served.token("eve", "read").await;
    served.db.push("shop", &crate::triggers::manifest(&[("t", "kv", "*")])).await;
    served.db.push("shop", &crate::triggers::manifest(&[("t", "kv", "a")])).await;
    let (status, shop) = served.ask(&reader, "GET /v1/apps/shop", &Value::Null).await;
    assert_eq!((status, &shop["app"]["name"]), (200, &json!("shop")), "{shop}");
    let parts = shop["parts"].as_array().unwrap();
    let trigger = json!({"kind": "trigger", "name": "t", "version": null});
    assert!(parts.contains(&trigger), "{shop}");
    assert_eq!(shop["versions"][0]["version"], 2, "the newest first: {shop}");
    served.refuses(&reader, "GET /v1/apps/none", &Value::Null, 404, "P7007").await;
}
