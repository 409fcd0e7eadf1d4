//! Many at once: a batch is as good as its items one by one, and one bad item is nobody else's trouble.

use serde_json::json;
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use super::{Item, manifest, quoted, script};
use crate::support::TestDb;

const EXECUTOR: &str = "symphony_executor";
const INGEST: &str = "symphony_ingest";
const PRINCIPAL: &str = "00000000-0000-0000-0000-0000000000bb";

/// Everything of an item that does not depend on when it was written.
const WRITTEN: &str = "SELECT jsonb_agg(to_jsonb(p) - '{id,root_execution_id,created_at,next_attempt_at,reply_deadline_at}'::text[] \
    || jsonb_build_object('waits', round(extract(epoch FROM p.reply_deadline_at - p.created_at))) ORDER BY p.payload->>'n')::text \
    FROM trigger_outbox_pending p";

#[tokio::test]
async fn a_batch_fires_what_is_right_and_says_of_the_rest_what_one_by_one_would_say() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("t", "kv", "*"), ("dead", "dead_letter", "*")]);
    shop["routes"] = json!([{"method": "POST", "path": "/", "script": "run"}]);
    db.push("shop", &shop).await;
    db.push("other", &manifest(&[])).await;
    let route: Uuid = db.one("SELECT id FROM routes").await;
    let kv: Uuid = db.one("SELECT id FROM triggers WHERE name = 't'").await;
    let dead: Uuid = db.one("SELECT id FROM triggers WHERE name = 'dead'").await;
    let reply = format!("'{}'::uuid", Uuid::new_v4());
    // App, kind, route or trigger, payload, principal, reply, how long; and what is wrong with it.
    let (shop, nobody, object) = ("'shop'", "NULL", |n: i32| quoted(&json!({ "n": n })));
    let items: Vec<([String; 7], &str)> = [
        (shop, "'http'", route, object(1), nobody, nobody, "NULL", ""),
        (shop, "'http'", route, object(2), PRINCIPAL, &reply, "30000", ""),
        ("'nobody'", "'http'", route, object(3), nobody, nobody, "NULL", "P7007"),
        (shop, "'kv'", kv, object(4), nobody, nobody, "NULL", ""),
        (shop, "'http'", kv, object(5), nobody, nobody, "NULL", "P7007"),
        (shop, "'kv'", route, object(6), nobody, nobody, "NULL", "P7007"),
        ("'other'", "'http'", route, object(7), nobody, nobody, "NULL", "P7007"),
        (shop, "'http'", route, quoted(&json!([])), nobody, nobody, "NULL", "P7005"),
        (shop, "'http'", route, "NULL::jsonb".to_owned(), nobody, nobody, "NULL", "P7005"),
        (shop, "'smoke'", route, object(9), nobody, nobody, "NULL", "P7005"),
        (shop, "'http'", route, object(8), nobody, &reply, "0", "P7005"),
        (shop, "'http'", route, object(8), nobody, &reply, "NULL", "P7005"),
        (
            shop,
            "'http'",
            route,
            quoted(&json!({"long": "x".repeat(2 << 20)})),
            nobody,
            nobody,
            "NULL",
            "P7005",
        ),
        (shop, "'dead_letter'", dead, object(9), nobody, nobody, "NULL", ""),
    ]
    .into_iter()
    .map(|(app, kind, id, payload, principal, reply, wait, wrong)| {
        let principal =
            if principal == nobody { nobody.to_owned() } else { format!("'{principal}'") };
        let fields = [app, kind, &format!("'{id}'"), &payload, &principal, reply, wait];
        (fields.map(str::to_owned), wrong)
    })
    .collect();

    let mut alone = Vec::new();
    for (fields, _) in &items {
        let sql = format!("SELECT * FROM enqueue_trigger_outbox({})", fields.join(", "));
        alone.push(db.refusal(INGEST, &sql).await);
    }
    let written_alone: String = db.one(WRITTEN).await;
    db.sql("DELETE FROM trigger_outbox_pending").await;

    let array = |index: usize, kind: &str| {
        let all: Vec<&str> = items.iter().map(|(fields, _)| fields[index].as_str()).collect();
        format!("ARRAY[{}]::{kind}[]", all.join(", "))
    };
    let kinds = ["text", "text", "uuid", "jsonb", "uuid", "uuid", "int"];
    let arrays: Vec<String> =
        kinds.iter().enumerate().map(|(index, kind)| array(index, kind)).collect();
    let sql = format!(
        "SELECT * FROM enqueue_trigger_outbox_batch({}) ORDER BY item_no",
        arrays.join(", ")
    );
    let connection = &mut db.as_role(INGEST).await;
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(connection).await.unwrap();
    assert_eq!(rows.len(), items.len());
    for (index, (row, ((_, wrong), alone))) in rows.iter().zip(items.iter().zip(&alone)).enumerate()
    {
        assert_eq!(row.get::<i32, _>("item_no"), i32::try_from(index).unwrap() + 1);
        let code: Option<String> = row.get("error_code");
        let message: Option<String> = row.get("error_message");
        assert_eq!(code.as_deref().unwrap_or(""), *wrong, "item {index}");
        assert_eq!(row.get::<Option<Uuid>, _>("id").is_some(), wrong.is_empty(), "item {index}");
        let said = code.zip(message).map_or("OK".to_owned(), |(c, m)| format!("{c} {m}"));
        assert_eq!(said, *alone, "item {index}");
    }
    assert_eq!(db.one::<String>(WRITTEN).await, written_alone);
    assert_eq!(db.count("trigger_outbox_pending WHERE root_execution_id = id").await, 4);
}

#[tokio::test]
async fn arrays_of_different_lengths_are_refused_whole() {
    let db = TestDb::new().await;
    for (call, refused) in [
        ("'{}', '{}', '{}', '{}'", "P7005 p_apps is 0"),
        ("'{a}', '{http,http}', '{}', '{}'", "P7005 p_source_kinds"),
        ("'{a}', '{http}', ARRAY[gen_random_uuid()], '{}'", "P7005 p_payloads"),
    ] {
        let sql = format!("SELECT * FROM enqueue_trigger_outbox_batch({call})");
        let said = db.refusal(INGEST, &sql).await;
        assert!(said.starts_with(refused), "{call}: {said}");
    }
    let claim =
        "SELECT * FROM claim_trigger_outbox_batch(1, 'w', 60, 5, ARRAY[gen_random_uuid()], '{}')";
    assert!(db.refusal(EXECUTOR, claim).await.starts_with("P7005 p_apps_held"));
}

#[tokio::test]
async fn of_one_app_a_worker_gets_no_more_than_it_may_have_with_what_it_has() {
    let db = TestDb::new().await;
    for (app, items) in [("slow", 9), ("mid", 2), ("quick", 9)] {
        db.push(app, &manifest(&[("t", "kv", "*")])).await;
        db.sql(&format!(
            "SELECT count(kv_set('{app}', 'k' || n, '1')) FROM generate_series(1, {items}) n"
        ))
        .await;
    }
    let claim = |batch: i32, slow_held: i32| {
        format!(
            "SELECT coalesce(string_agg(a.name || ' ' || c.n, ', ' ORDER BY a.name), '') FROM (\
               SELECT app_id, count(*) AS n FROM claim_trigger_outbox_batch({batch}, 'w', 60, 5, \
                 ARRAY[(SELECT id FROM apps WHERE name = 'slow')], ARRAY[{slow_held}]) GROUP BY app_id) c \
               JOIN apps a ON a.id = c.app_id"
        )
    };
    let got: String = db.one_as(EXECUTOR, &claim(100, 3)).await;
    assert_eq!(got, "mid 2, quick 5, slow 2");
    // What it has reached holds up nobody else.
    let got: String = db.one_as(EXECUTOR, &claim(3, 5)).await;
    assert_eq!(got, "quick 3");
    assert_eq!(db.one_as::<String>(EXECUTOR, &claim(3, 7)).await, "quick 1");
    assert_eq!(db.one_as::<String>(EXECUTOR, &claim(3, 7)).await, "");
    assert_eq!(db.one_as::<String>(EXECUTOR, &claim(100, 0)).await, "slow 5");
}

#[tokio::test]
async fn a_batch_of_outcomes_is_answered_one_by_one_and_fires_what_each_fires() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("t", "kv", "*"), ("dead", "dead_letter", "run")]);
    shop["scripts"] = json!([script("run"), script("bury")]);
    shop["triggers"][1]["script"] = json!("bury");
    db.push("shop", &shop).await;
    for n in 0..6 {
        db.kv_set("shop", &format!("k{n}"), &json!(n)).await;
    }
    let items = db.claim_items("w", 10).await;
    let [done, failed, again, final_one, lost, odd] = &items[..] else { panic!("{items:?}") };
    db.sql(&format!(
        "UPDATE trigger_outbox_pending SET attempt_count = attempts_max - 1 WHERE id = '{}'",
        final_one.id
    ))
    .await;
    let complete = |outcomes: &[(&Item, Uuid, &str)]| {
        let array_of =
            |kind: &str, texts: Vec<String>| format!("ARRAY['{}']::{kind}[]", texts.join("', '"));
        format!(
            "SELECT string_agg(concat_ws(' ', item_no, result, attempt_no, state, error_code), '; ') \
               FROM complete_trigger_outbox_attempts('w', {}, {}, {}, p_error_codes => {})",
            array_of("uuid", outcomes.iter().map(|(item, _, _)| item.id.to_string()).collect()),
            array_of("uuid", outcomes.iter().map(|(_, token, _)| token.to_string()).collect()),
            array_of("text", outcomes.iter().map(|(_, _, state)| (*state).to_owned()).collect()),
            array_of("text", outcomes.iter().map(|(_, _, state)| format!("E_{state}")).collect()),
        )
    };
    let outcomes = [
        (lost, Uuid::new_v4(), "DISPATCHED"),
        (again, again.token, "RETRYABLE"),
        (done, done.token, "DISPATCHED"),
        (odd, odd.token, "PERHAPS"),
        (final_one, final_one.token, "RETRYABLE"),
        (failed, failed.token, "FAILED"),
    ];
    let answered = "1 P7002; 2 OK 1 RETRYABLE E_RETRYABLE; 3 OK 1 DISPATCHED E_DISPATCHED; 4 P7003; \
                    5 OK 1 FAILED E_RETRYABLE; 6 OK 1 FAILED E_FAILED";
    assert_eq!(db.one_as::<String>(EXECUTOR, &complete(&outcomes)).await, answered);
    // Repeated, it is answered as the first time, and nothing is written again.
    assert_eq!(db.one_as::<String>(EXECUTOR, &complete(&outcomes)).await, answered);
    assert_eq!(db.count("trigger_outbox_attempts").await, 4);
    assert_eq!(db.count("trigger_outbox_executions").await, 3);
    let dead: String = db
        .one("SELECT string_agg(concat_ws(' ', payload->>'executionId', payload->>'errorCode'), ', ' ORDER BY payload->>'errorCode' DESC) \
                FROM trigger_outbox_pending WHERE source_kind = 'dead_letter'")
        .await;
    assert_eq!(dead, format!("{} E_RETRYABLE, {} E_FAILED", final_one.id, failed.id));
    db.assert_items_hold().await;
}
