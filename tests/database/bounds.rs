//! Bounds in the database: what a call may weigh, what JSON may be, what strangers may cost.

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};
use symphony::domain::Payload;

use crate::support::{TestDb, payment, run, verdict};

const INGEST: &str = "symphony_ingest";
const EXECUTOR: &str = "symphony_executor";
/// What one number of six characters becomes.
const WIDE: &str = "1e131071";

/// An app with a queue, and its only route.
async fn shop(db: &TestDb) -> uuid::Uuid {
    db.sql(
        r#"SELECT push_app('shop', '{"queues": ["q"], "topics": ["t"], "scripts": [{"name": "s", "source": "x"}],
               "routes": [{"method": "POST", "path": "/", "script": "s"}]}', 'dana')"#,
    )
    .await;
    db.one("SELECT id FROM routes").await
}

fn event(payload: &str) -> String {
    format!(
        r#"{{"envelope": {{"v": 1, "eventId": "{}", "occurredAt": "2026-11-15T12:00:00Z", "tenantId": "t", "type": "events.a.b"}},
             "key": {{"id": "k"}}, "payload": {payload}}}"#,
        uuid::Uuid::new_v4()
    )
}

/// Every way into the database for JSON, with this object in it.
async fn ways_in(db: &TestDb, object: &str) -> Vec<String> {
    let route: uuid::Uuid = db.one("SELECT id FROM routes").await;
    let event = event(object);
    vec![
        format!(
            "SELECT enqueue_payment_outbox('i', 'p', gen_random_uuid()::text, 'ach', '{object}')"
        ),
        format!("SELECT enqueue_event_outbox('{event}')"),
        format!("SELECT enqueue_trigger_outbox('shop', 'http', '{route}', '{object}')"),
        format!("SELECT kv_set('shop', 'k', '{object}')"),
        format!("SELECT send_to_queue('shop', 'q', '{object}')"),
        format!("SELECT publish_topic('shop', 't', '{object}')"),
        format!("SELECT receive_trigger_email('a@b.example', '{object}')"),
    ]
}

/// The same for whole batches: what the answer says of the first item.
async fn batches(db: &TestDb, object: &str) -> Vec<String> {
    let route: uuid::Uuid = db.one("SELECT id FROM routes").await;
    let event = event(object);
    vec![
        format!(
            "SELECT error_code FROM enqueue_payment_outbox_batch(ARRAY['b'], ARRAY['p'], ARRAY[gen_random_uuid()::text], ARRAY['ach'], ARRAY['{object}'::jsonb])"
        ),
        format!("SELECT error_code FROM enqueue_event_outbox_batch(ARRAY['{event}'::jsonb])"),
        format!(
            "SELECT error_code FROM enqueue_trigger_outbox_batch(ARRAY['shop'], ARRAY['http'], ARRAY['{route}'::uuid], ARRAY['{object}'::jsonb])"
        ),
    ]
}

async fn first_error(connection: &mut PgConnection, sql: &str) -> Option<String> {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await.unwrap()
}

/// The most memory a backend has ever had, in kB.
async fn peak_kb(connection: &mut PgConnection) -> u64 {
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn numbers_that_expand_are_refused_by_every_way_in_and_cost_nothing() {
    let db = TestDb::new().await;
    shop(&db).await;
    // 80 KB of them, a handful, and a zero that is 16 KB of text, four times.
    let many = vec![WIDE; 9_000].join(", ");
    for object in [
        format!(r#"{{"n": [{many}]}}"#),
        format!(r#"{{"n": [{WIDE}, -{WIDE}]}}"#),
        format!(r#"{{"n": [{}]}}"#, ["0e-16383"; 5].join(", ")),
    ] {
        for sql in ways_in(&db, &object).await {
            assert_eq!(verdict(&db, INGEST, &sql).await, "P7005", "{}", &sql[..60]);
        }
        for sql in batches(&db, &object).await {
            let mut connection = db.as_role(INGEST).await;
            let error = first_error(&mut connection, &sql).await;
            assert_eq!(error.as_deref(), Some("P7005"), "{}", &sql[..60]);
            let peak = peak_kb(&mut connection).await;
            assert!(peak < 200_000, "{peak} kB for {}", &sql[..60]);
        }
    }
    // Many small ones in one batch: none of their texts is kept.
    let mut connection = db.as_role(INGEST).await;
    let small = format!(r#"{{"n": [{}]}}"#, [WIDE; 20].join(", "));
    let refused: i64 = sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT count(*) FILTER (WHERE error_code = 'P7005') FROM enqueue_payment_outbox_batch(array_fill('i'::text, '{{1000}}'), \
             array_fill('p'::text, '{{1000}}'), array_fill('k'::text, '{{1000}}'), array_fill('ach'::text, '{{1000}}'), \
             array_fill('{small}'::jsonb, '{{1000}}'))"
    )))
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(refused, 1_000);
    let peak = peak_kb(&mut connection).await;
    assert!(peak < 200_000, "{peak} kB");
}

#[tokio::test]
async fn every_double_is_a_number_and_64_levels_are_not_too_deep() {
    let db = TestDb::new().await;
    shop(&db).await;
    let nested =
        |levels: usize| format!(r#"{{"n": {}1{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let doubles = r#"{"n": [1.7976931348623157e308, -5e-324, 0, 0.1, 12345678901234567890]}"#;
    for object in [doubles.to_owned(), nested(60)] {
        for sql in ways_in(&db, &object).await {
            assert_eq!(verdict(&db, INGEST, &sql).await, "OK", "{sql}");
        }
    }
    for sql in ways_in(&db, &nested(70)).await {
        assert_eq!(verdict(&db, INGEST, &sql).await, "P7005", "{sql}");
    }
    for sql in batches(&db, &nested(70)).await {
        let mut connection = db.as_role(INGEST).await;
        assert_eq!(first_error(&mut connection, &sql).await.as_deref(), Some("P7005"), "{sql}");
    }
}

#[tokio::test]
async fn a_batch_of_more_than_16_mib_is_refused_before_anything_is_done() {
    let db = TestDb::new().await;
    let route = shop(&db).await;
    let payloads = |count: usize| {
        format!("array_fill(jsonb_build_object('x', repeat('x', 1000000)), ARRAY[{count}])")
    };
    let texts = |count: usize| format!("array_fill('t'::text, ARRAY[{count}])");
    let payments = |count: usize| {
        let (t, p) = (texts(count), payloads(count));
        format!(
            "SELECT * FROM enqueue_payment_outbox_batch({t}, {t}, (SELECT array_agg(g::text) FROM generate_series(1, {count}) g), {t}, {p})"
        )
    };
    let n = 17;
    let (uuids, long) = (
        format!("(SELECT array_agg(gen_random_uuid()) FROM generate_series(1, {n}))"),
        format!("array_fill(repeat('x', 1000000), ARRAY[{n}])"),
    );
    for (role, sql) in [
        (INGEST, payments(n)),
        (INGEST, format!("SELECT * FROM enqueue_event_outbox_batch({})", payloads(n))),
        (
            INGEST,
            format!(
                "SELECT * FROM enqueue_trigger_outbox_batch({t}, {t}, array_fill('{route}'::uuid, ARRAY[{n}]), {p})",
                t = texts(n),
                p = payloads(n)
            ),
        ),
        (
            EXECUTOR,
            format!(
                "SELECT * FROM complete_outbox_attempts('w', {uuids}, {uuids}, {t}, p_error_messages => {long})",
                t = texts(n)
            ),
        ),
        (
            EXECUTOR,
            format!(
                "SELECT * FROM complete_event_outbox_attempts('w', array_fill(1::smallint, ARRAY[{n}]), (SELECT array_agg(g::bigint) FROM generate_series(1, {n}) g), {uuids}, {t}, p_error_messages => {long})",
                t = texts(n)
            ),
        ),
        (
            EXECUTOR,
            format!(
                "SELECT * FROM complete_trigger_outbox_attempts('w', {uuids}, {uuids}, {t}, p_results => {p})",
                t = texts(n),
                p = payloads(n)
            ),
        ),
    ] {
        assert_eq!(verdict(&db, role, &sql).await, "P7005", "{}", &sql[..60]);
    }
    assert_eq!(verdict(&db, INGEST, &payments(15)).await, "OK");
    assert_eq!(db.count("payment_outbox_pending").await, 15);
}

#[tokio::test]
async fn a_claim_costs_what_it_asks_for_and_rails_nobody_serves_cost_nothing() {
    let db = TestDb::new().await;
    db.enqueue_stream("p", "ach", 5).await;
    let junk: Vec<_> =
        (0..4_000).map(|n| payment(&format!("j{n}"), "p", &format!("junk{n}"))).collect();
    for some in junk.chunks(1_000) {
        db.database.producer().enqueue_payments(some).await.unwrap();
    }
    db.sql("VACUUM ANALYZE payment_outbox_pending").await;
    let mut worker = db.as_role(EXECUTOR).await;
    for (call, what) in [
        ("SELECT * FROM claim_outbox_batch(10, 'w', 60, ARRAY['ach', 'never'])", "a claim"),
        ("SELECT * FROM repair_expired_leases(10, 'w')", "a repair"),
    ] {
        // Once for the plans and caches.
        for attempt in 0..2 {
            let plan: Value = sqlx::query_scalar(AssertSqlSafe(format!(
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}"
            )))
            .fetch_one(&mut worker)
            .await
            .unwrap();
            let pages = plan[0]["Plan"]["Shared Hit Blocks"].as_i64().unwrap();
            assert!(attempt == 0 || pages < 500, "{what} reads {pages} pages");
        }
    }
    assert_eq!(
        db.count("payment_outbox_pending WHERE claimed_by = 'w' AND rail_type = 'ach'").await,
        5
    );
    assert_eq!(db.count("payment_outbox_rails WHERE rail_type LIKE 'junk%'").await, 0);
    let rails = "SELECT claim_outbox_batch(1, 'w', 60, array_fill('r'::text, '{1001}'))";
    assert_eq!(verdict(&db, EXECUTOR, rails).await, "P7005");
}

#[tokio::test]
async fn a_reused_key_tells_a_stranger_nothing_of_the_others_item() {
    let db = TestDb::new().await;
    let first = db.enqueue(&payment("i", "mine", "ach")).await;
    let mut stranger = payment("i", "theirs", "ach");
    let mut own = payment("i", "mine", "ach");
    own.payload = Payload::parse("{}").unwrap();
    let ingest = db.database.producer();
    let told = ingest.enqueue_payment(&stranger).await.unwrap_err();
    assert_eq!(told.code(), "P7004");
    assert!(!told.to_string().contains(&first.outbox_id.to_string()), "{told}");
    let told = ingest.enqueue_payment(&own).await.unwrap_err();
    assert!(told.to_string().contains(&first.outbox_id.to_string()), "{told}");

    stranger.payload = own.payload.clone();
    let requests = [stranger, own];
    let answers = ingest.enqueue_payments(&requests).await.unwrap();
    let told = answers.iter().map(|answer| answer.as_ref().unwrap_err()).collect::<Vec<_>>();
    assert!(told.iter().all(|refusal| refusal.code() == "P7004"), "{told:?}");
    assert!(!told[0].to_string().contains(&first.outbox_id.to_string()), "{told:?}");
    // What the function itself answers: to a stranger nothing of the item.
    let rows: Vec<(i32, Option<symphony::domain::OutboxId>)> = sqlx::query_as(
        "SELECT num_nonnulls(outbox_id, sequence_id, created_at, state, duplicate), outbox_id \
           FROM symphony.enqueue_payment_outbox_batch(ARRAY[$1, $1], $2, ARRAY[$3, $3], ARRAY['ach', 'ach'], \
                                                      ARRAY['{}', '{}']::jsonb[])",
    )
    .bind(&requests[0].instruction_id)
    .bind(requests.iter().map(|request| request.participant_id.as_str()).collect::<Vec<_>>())
    .bind(&requests[0].idempotency_key)
    .fetch_all(&mut db.as_role("symphony_ingest").await)
    .await
    .unwrap();
    assert_eq!(rows[0], (0, None));
    assert_eq!(rows[1].1, Some(first.outbox_id));
}

#[tokio::test]
async fn a_lock_that_anybody_may_take_does_not_decide_who_follows_hints() {
    let db = TestDb::new().await;
    run(&mut db.admin().await, "CREATE ROLE stranger_of_hints LOGIN").await.unwrap();
    // The advisory lock by which an earlier version elected who follows hints.
    let mut stranger = db.as_role("stranger_of_hints").await;
    run(&mut stranger, "SELECT pg_advisory_lock(1937337712, hashtext('payments/ach'))")
        .await
        .unwrap();
    let one: bool = db.one_as(EXECUTOR, "SELECT lead_outbox_hints('payments/ach', 'w1', 60)").await;
    let two: bool = db.one_as(EXECUTOR, "SELECT lead_outbox_hints('payments/ach', 'w2', 60)").await;
    assert_eq!((one, two), (true, false), "one of two leads, whoever holds what lock");
    db.sql("UPDATE outbox_hint_leaders SET lease_expires_at = clock_timestamp()").await;
    let two: bool = db.one_as(EXECUTOR, "SELECT lead_outbox_hints('payments/ach', 'w2', 60)").await;
    let one: bool = db.one_as(EXECUTOR, "SELECT lead_outbox_hints('payments/ach', 'w1', 60)").await;
    assert_eq!((one, two), (false, true), "a silent one is replaced");
    for sql in [
        "SELECT symphony.lead_outbox_hints('payments/ach', 'w', 60)",
        "UPDATE symphony.outbox_hint_leaders SET worker_id = 'me'",
    ] {
        for role in ["stranger_of_hints", INGEST, "symphony_operator"] {
            assert_eq!(verdict(&db, role, sql).await, "42501", "{role}: {sql}");
        }
    }
}
