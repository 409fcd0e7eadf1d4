//! No claim and no completion of any lane reads a whole table, whatever the statistics say: a plan that was right for a
//! table of ten rows must not be the plan for a million.

use serde_json::json;
use sqlx::{PgConnection, Row as _};

use crate::support::{TestDb, run};
use crate::triggers::manifest;

/// How deep the backlog is, and how many items are claimed and completed.
const BACKLOG: usize = 1_500;
const ROUNDS: usize = 3;
const BATCH: usize = 8;
/// Rows that may be read of any table for each item. A whole table is hundreds.
const READS_PER_ITEM_MAX: i64 = 24;

/// One claim and its completion; answers how many items.
const PAYMENTS: &str = "WITH c AS MATERIALIZED (SELECT * FROM claim_outbox_batch(8, 'w', 60)), \
    i AS (SELECT array_agg(outbox_id) AS ids, array_agg(lease_token) AS tokens, count(*)::int AS n FROM c) \
    SELECT count(*) FROM (SELECT * FROM i WHERE n > 0) i, LATERAL complete_outbox_attempts('w', i.ids, i.tokens, array_fill('DISPATCHED'::text, ARRAY[i.n]), \
    array_fill('r'::text, ARRAY[i.n])) d WHERE d.result = 'OK'";
const EVENTS: &str = "WITH c AS MATERIALIZED (SELECT * FROM claim_event_outbox_batch(8, 'w', 60)), \
    i AS (SELECT array_agg(bucket ORDER BY log_position) AS buckets, array_agg(log_position ORDER BY log_position) AS positions, \
                 array_agg(lease_token ORDER BY log_position) AS tokens, count(*)::int AS n FROM c) \
    SELECT count(*) FROM (SELECT * FROM i WHERE n > 0) i, LATERAL complete_event_outbox_attempts('w', i.buckets, i.positions, i.tokens, \
    array_fill('DISPATCHED'::text, ARRAY[i.n])) d WHERE d.result = 'OK'";
const TRIGGERS: &str = "WITH c AS MATERIALIZED (SELECT * FROM claim_trigger_outbox_batch(8, 'w', 60)), \
    i AS (SELECT array_agg(id) AS ids, array_agg(lease_token) AS tokens, count(*)::int AS n FROM c) \
    SELECT count(*) FROM (SELECT * FROM i WHERE n > 0) i, LATERAL complete_trigger_outbox_attempts('w', i.ids, i.tokens, array_fill('DISPATCHED'::text, ARRAY[i.n]), \
    p_effects => array_fill('[{\"kind\": \"kv_set\", \"key\": \"k\", \"value\": 1}]'::jsonb, ARRAY[i.n])) d WHERE d.result = 'OK'";

/// The same with what each run has read, in the order in which a worker reports.
const TRIGGERS_WITH_READS: &str = "WITH c AS MATERIALIZED (SELECT * FROM claim_trigger_outbox_batch(8, 'w', 60)), \
    i AS (SELECT array_agg(id) AS ids, array_agg(lease_token) AS tokens, count(*)::int AS n FROM c) \
    SELECT count(*) FROM (SELECT * FROM i WHERE n > 0) i, LATERAL complete_trigger_outbox_attempts('w', i.ids, i.tokens, array_fill('DISPATCHED'::text, ARRAY[i.n]), \
    p_reads => array_fill('[{\"key\": \"no such\", \"version\": null}]'::jsonb, ARRAY[i.n])) d WHERE d.result = 'OK'";
/// Leases that have expired, ended.
const REPAIRS: &str = "SELECT count(*) FROM repair_trigger_outbox_leases(8, 'w')";
/// Requests that ran first, and requests written already leased.
const REQUESTS: &str = "WITH r AS MATERIALIZED (SELECT array_agg(symphony.time_ordered_id()) AS ids FROM generate_series(1, 8)) \
    SELECT count(*) FROM r, LATERAL complete_trigger_requests('w', r.ids, r.ids, array_fill((SELECT id FROM apps LIMIT 1), ARRAY[8]), \
    array_fill((SELECT id FROM routes LIMIT 1), ARRAY[8]), array_fill((SELECT id FROM scripts LIMIT 1), ARRAY[8]), array_fill('{}'::jsonb, ARRAY[8]), \
    NULL, r.ids, array_fill(60000, ARRAY[8]), array_fill(5, ARRAY[8]), NULL, array_fill('DISPATCHED'::text, ARRAY[8]), NULL, NULL, \
    NULL, NULL, NULL, array_fill(2, ARRAY[8]), array_fill(true, ARRAY[8]), NULL, 1000) d WHERE d.result = 'OK'";
const LEASED: &str = "WITH r AS MATERIALIZED (SELECT array_agg(symphony.time_ordered_id()) AS ids FROM generate_series(1, 8)) \
    SELECT count(*) FROM r, LATERAL enqueue_leased_triggers('w', 60, array_fill(true, ARRAY[8]), array_fill('shop'::text, ARRAY[8]), \
    array_fill((SELECT id FROM routes LIMIT 1), ARRAY[8]), array_fill('{}'::jsonb, ARRAY[8]), NULL, r.ids, array_fill(60000, ARRAY[8])) d \
     WHERE d.lease_token IS NOT NULL";

#[derive(Debug, Clone, Copy)]
enum Statistics {
    /// Nobody has ever looked.
    Empty,
    /// Somebody looked when there were ten rows.
    Young,
    /// Somebody looked when the tables had been emptied.
    Stale,
    /// Somebody has just looked.
    Fresh,
}

async fn in_every_state(lane: &str, drain: &'static str, fill: impl AsyncFn(&TestDb, usize)) {
    for statistics in [Statistics::Empty, Statistics::Young, Statistics::Stale, Statistics::Fresh] {
        let db = TestDb::new().await;
        let mut admin = db.admin().await;
        match statistics {
            Statistics::Empty | Statistics::Fresh => {}
            Statistics::Young => {
                fill(&db, 10).await;
                run(&mut admin, "ANALYZE").await.unwrap();
            }
            Statistics::Stale => {
                // A full table, drained: what is left of it says that it is empty.
                fill(&db, 10).await;
                while drained(&mut admin, drain).await > 0 {}
                run(&mut admin, "VACUUM ANALYZE").await.unwrap();
            }
        }
        fill(&db, BACKLOG).await;
        if matches!(statistics, Statistics::Fresh) {
            run(&mut admin, "ANALYZE").await.unwrap();
        }
        // Exactly what this transaction reads, as this session counts it. There is a fixed number of cursors, a row for
        // each bucket.
        run(&mut admin, "BEGIN").await.unwrap();
        let mut items = 0;
        for _ in 0..ROUNDS {
            items += drained(&mut admin, drain).await;
        }
        assert!(items >= i64::try_from(BATCH).unwrap(), "{lane}: {items}");
        let (name, rows) = most_read(&mut admin).await;
        assert!(
            rows <= items * READS_PER_ITEM_MAX,
            "{lane}, {statistics:?}: {rows} rows of {name} were read for {items} items"
        );
        run(&mut admin, "ROLLBACK").await.unwrap();
    }
}

/// The table of which this transaction has read most.
async fn most_read(connection: &mut PgConnection) -> (String, i64) {
    let read = sqlx::query(
        "SELECT relname::text AS name, seq_tup_read + coalesce(idx_tup_fetch, 0) AS rows FROM pg_stat_xact_user_tables \
          WHERE schemaname = 'symphony' AND relname <> 'event_outbox_cursors' ORDER BY 2 DESC LIMIT 1",
    )
    .fetch_one(connection)
    .await
    .unwrap();
    (read.get("name"), read.get("rows"))
}

async fn drained(connection: &mut PgConnection, drain: &'static str) -> i64 {
    sqlx::query_scalar(drain).fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn payments_are_found_by_index_whatever_the_statistics_say() {
    in_every_state("payments", PAYMENTS, async |db, count| {
        let name = crate::support::unique("p");
        db.enqueue_stream(&name, "ach", count).await;
    })
    .await;
}

#[tokio::test]
async fn events_are_found_by_index_whatever_the_statistics_say() {
    in_every_state("events", EVENTS, async |db, count| {
        for n in 0..20 {
            db.tell_of(&format!("k{n}"), count.div_ceil(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn triggers_are_found_by_index_whatever_the_statistics_say() {
    in_every_state("triggers", TRIGGERS, async |db, count| {
        db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
        let send = format!(
            "SELECT send_to_queue('shop', 'jobs', to_jsonb(n)) FROM generate_series(1, {count}) n"
        );
        db.sql(&send).await;
    })
    .await;
}

#[tokio::test]
async fn messages_in_order_are_found_by_index_whatever_the_statistics_say() {
    in_every_state("triggers in order", TRIGGERS, async |db, count| {
        db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
        // Two orders are nearly all of the backlog, and await their turns.
        let send = format!(
            "SELECT send_to_queue('shop', 'jobs', to_jsonb(n), p_key => CASE WHEN n % 50 = 0 THEN 'own ' || n ELSE 'shared ' || n % 2 END) \
               FROM generate_series(1, {count}) n"
        );
        db.sql(&send).await;
    })
    .await;
}

#[tokio::test]
async fn completions_with_reads_are_found_by_index_whatever_the_statistics_say() {
    in_every_state("triggers with reads", TRIGGERS_WITH_READS, async |db, count| {
        db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
        let send = format!(
            "SELECT send_to_queue('shop', 'jobs', to_jsonb(n)) FROM generate_series(1, {count}) n; \
             INSERT INTO kv_entries (app_id, key, value) SELECT id, 'key ' || n, '1' FROM apps, generate_series(1, {count}) n \
             ON CONFLICT DO NOTHING"
        );
        db.sql(&send).await;
    })
    .await;
}

#[tokio::test]
async fn leases_to_repair_are_found_by_index_whatever_the_statistics_say() {
    in_every_state("repairs", REPAIRS, async |db, count| {
        db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
        // A few of many have expired.
        let send = format!(
            "SELECT send_to_queue('shop', 'jobs', to_jsonb(n)) FROM generate_series(1, {count}) n; \
             SELECT count(*) FROM claim_trigger_outbox_batch(4096, 'gone', 3600); \
             UPDATE trigger_outbox_pending SET lease_expires_at = clock_timestamp() - interval '1 second' \
              WHERE id IN (SELECT id FROM trigger_outbox_pending WHERE lease_token IS NOT NULL ORDER BY id LIMIT 24)"
        );
        db.sql(&send).await;
    })
    .await;
}

/// Requests of one app with many executions, entries and items beside them.
async fn requests_come(db: &TestDb, count: usize) {
    let mut shop = manifest(&[("q", "queue", "jobs")]);
    shop["routes"] = json!([{"method": "GET", "path": "/", "script": "run"}]);
    db.push("shop", &shop).await;
    let send = format!(
        "SELECT send_to_queue('shop', 'jobs', to_jsonb(n)) FROM generate_series(1, {count}) n; \
         INSERT INTO trigger_outbox_executions (id, app_id, app_name, source_kind, root_execution_id, trigger_depth, payload, state, attempts, \
                                                created_at) \
         SELECT symphony.time_ordered_id(), id, 'shop', 'kv', gen_random_uuid(), 0, '{{}}', 'DISPATCHED', 1, now() \
           FROM apps, generate_series(1, {count}) n"
    );
    db.sql(&send).await;
}

#[tokio::test]
async fn requests_are_written_and_completed_by_index_whatever_the_statistics_say() {
    for (lane, call) in [("requests that ran first", REQUESTS), ("requests written leased", LEASED)]
    {
        for statistics in
            [Statistics::Empty, Statistics::Young, Statistics::Stale, Statistics::Fresh]
        {
            let db = TestDb::new().await;
            let mut admin = db.admin().await;
            if matches!(statistics, Statistics::Young | Statistics::Stale) {
                requests_come(&db, 10).await;
                if matches!(statistics, Statistics::Stale) {
                    let emptied = "DELETE FROM trigger_outbox_pending; DELETE FROM trigger_outbox_executions; VACUUM ANALYZE";
                    for statement in emptied.split("; ") {
                        run(&mut admin, statement).await.unwrap();
                    }
                } else {
                    run(&mut admin, "ANALYZE").await.unwrap();
                }
            }
            requests_come(&db, BACKLOG).await;
            if matches!(statistics, Statistics::Fresh) {
                run(&mut admin, "ANALYZE").await.unwrap();
            }
            run(&mut admin, "BEGIN").await.unwrap();
            let mut items = 0;
            for _ in 0..ROUNDS {
                items += drained(&mut admin, call).await;
            }
            assert_eq!(items, i64::try_from(ROUNDS * BATCH).unwrap(), "{lane}");
            let (name, rows) = most_read(&mut admin).await;
            assert!(
                rows <= items * READS_PER_ITEM_MAX,
                "{lane}, {statistics:?}: {rows} rows of {name} were read for {items} items"
            );
            run(&mut admin, "ROLLBACK").await.unwrap();
        }
    }
}

/// Apps that each have one item, not due or paused, and one app among them with something to do.
async fn many_apps(db: &TestDb, apps: usize) {
    db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
    db.sql(&format!(
        "INSERT INTO apps (name) SELECT 'app-' || n FROM generate_series(1, {apps}) n; \
         INSERT INTO trigger_outbox_pending (app_id, source_kind, payload, root_execution_id, attempts_max, backoff_seconds, next_attempt_at) \
         SELECT id, 'kv', '{{}}', id, 5, '{{1}}', clock_timestamp() + interval '1 hour' FROM apps WHERE name <> 'shop'; \
         ANALYZE apps; ANALYZE trigger_outbox_pending"
    ))
    .await;
}

/// Rows of the apps and of their items that a claim reads, and how many items it leases. It is undone.
async fn claim_reads(db: &TestDb) -> (i64, i64) {
    let mut admin = db.admin().await;
    run(&mut admin, "BEGIN").await.unwrap();
    let claimed =
        drained(&mut admin, "SELECT count(*) FROM claim_trigger_outbox_batch(8, 'w', 60)").await;
    let read: i64 = sqlx::query_scalar(
        "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables \
          WHERE relname IN ('apps', 'trigger_outbox_pending')",
    )
    .fetch_one(&mut admin)
    .await
    .unwrap();
    run(&mut admin, "ROLLBACK").await.unwrap();
    (read, claimed)
}

/// What a claim reads where many apps have something that cannot be run now.
async fn a_claim_among(apps: usize) {
    let db = TestDb::new().await;
    many_apps(&db, apps).await;
    let (read, claimed) = claim_reads(&db).await;
    assert!(read <= 100 && claimed == 0, "nothing is due: {read} rows were read");
    for n in 0..20 {
        db.send("shop", "jobs", &json!(n)).await;
    }
    // The first apps of the walk, then what is due by time.
    let (read, claimed) = claim_reads(&db).await;
    assert_eq!(claimed, 8);
    assert!(read <= 400, "one app has something due: {read} rows were read");
    db.sql("UPDATE trigger_outbox_pending SET next_attempt_at = clock_timestamp() - interval '1 minute'").await;
    db.sql("UPDATE apps SET paused = true WHERE name <> 'shop'").await;
    db.sql("VACUUM ANALYZE trigger_outbox_pending").await;
    db.sql("VACUUM ANALYZE apps").await;
    let (read, claimed) = claim_reads(&db).await;
    assert_eq!(claimed, 8);
    assert!(read <= 100, "the others are paused: {read} rows were read");
    db.sql("UPDATE apps SET paused = true").await;
    let (read, claimed) = claim_reads(&db).await;
    assert_eq!(claimed, 0);
    assert!(read <= 20, "all are paused: {read} rows were read");
    db.sql("UPDATE apps SET paused = false").await;
    let (read, claimed) = claim_reads(&db).await;
    assert_eq!(claimed, 8);
    assert!(read <= 3_500, "all have something due: {read} rows were read");
}

#[tokio::test]
async fn a_claim_looks_at_no_app_that_has_nothing_due_or_is_paused() {
    a_claim_among(3_000).await;
}

#[tokio::test]
#[ignore = "the long form: 100,000 apps; scripts/test --long"]
async fn a_claim_among_a_hundred_thousand_apps() {
    a_claim_among(100_000).await;
}

#[tokio::test]
async fn among_many_apps_each_with_work_those_that_waited_longest_go_first_and_a_deep_one_starves_nobody()
 {
    let db = TestDb::new().await;
    many_apps(&db, 300).await;
    // One app with a deep and old backlog, and every other one with something younger.
    db.sql("SELECT send_to_queue('shop', 'jobs', to_jsonb(n)) FROM generate_series(1, 1200) n")
        .await;
    db.sql(
        "UPDATE trigger_outbox_pending p SET next_attempt_at = clock_timestamp() - interval '1 hour' FROM apps a WHERE a.id = p.app_id AND a.name = 'shop'; \
         UPDATE trigger_outbox_pending p SET next_attempt_at = clock_timestamp() - interval '1 minute' FROM apps a WHERE a.id = p.app_id AND a.name <> 'shop'",
    )
    .await;
    let mut admin = db.admin().await;
    let mut served = 0;
    for _ in 0..10 {
        let others = "WITH c AS MATERIALIZED (SELECT * FROM claim_trigger_outbox_batch(64, 'w', 60)) \
                      SELECT count(*) FROM c JOIN apps a ON a.id = c.app_id WHERE a.name <> 'shop'";
        served += drained(&mut admin, others).await;
    }
    assert_eq!(served, 300, "a batch has one item of the deep app and 63 of the others");
}

#[tokio::test]
async fn an_empty_claim_looks_at_no_idle_app() {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
    db.sql(
        "INSERT INTO apps (name) SELECT 'idle-' || n FROM generate_series(1, 5000) n; ANALYZE apps",
    )
    .await;
    let mut admin = db.admin().await;
    for (sent, most) in [(0, 0), (20, 60)] {
        for n in 0..sent {
            db.send("shop", "jobs", &json!(n)).await;
        }
        run(&mut admin, "BEGIN; SELECT * FROM claim_trigger_outbox_batch(8, 'w', 60)")
            .await
            .unwrap();
        let read: i64 = sqlx::query_scalar(
            "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_xact_user_tables \
              WHERE relname IN ('apps', 'trigger_outbox_pending')",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
        assert!(read <= most, "{read} rows were read for a claim from {sent}");
        run(&mut admin, "ROLLBACK").await.unwrap();
    }
}
