//! What races: workers with effects over the same keys, producers that roll back, pushes and senders.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{claim_on, manifest, quoted, settle_on};
use crate::support::{TestDb, run};

const WORKERS: usize = 8;
const KEYS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_write_the_same_keys_in_opposite_orders_never_deadlock_and_apply_everything_once()
 {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("q", "queue", "jobs"), ("k", "kv", "key0")])).await;
    let messages = 300_i64;
    db.sql(&format!("SELECT count(send_to_queue('shop', 'jobs', to_jsonb(n))) FROM generate_series(1, {messages}) n")).await;
    let left = Arc::new(AtomicI64::new(messages));
    let mut workers = JoinSet::new();
    let barrier = Arc::new(Barrier::new(WORKERS));
    for n in 0..WORKERS {
        let (mut connection, left, barrier) =
            (db.as_role("symphony_executor").await, left.clone(), barrier.clone());
        workers.spawn(async move {
            let worker = format!("w{n}");
            barrier.wait().await;
            while left.load(Ordering::SeqCst) > 0 {
                for (turn, item) in claim_on(&mut connection, &worker, 5).await.iter().enumerate() {
                    let mut effects: Vec<Value> = (0..KEYS)
                        .map(
                            |key| json!({"kind": "kv_set", "key": format!("key{key}"), "value": n}),
                        )
                        .collect();
                    if n % 2 == 1 {
                        effects.reverse();
                    }
                    effects
                        .push(json!({"kind": "queue_send", "queue": "mail", "message": item.id}));
                    // What a key fired has nothing to do.
                    let effects =
                        if item.source_kind == "queue" { json!(effects) } else { json!([]) };
                    for _ in 0..=usize::from(turn % 2 == 0) {
                        let settled =
                            settle_on(&mut connection, &worker, item, "DISPATCHED", &effects)
                                .await
                                .unwrap();
                        assert_eq!(
                            (settled.result.as_str(), settled.outcome.as_str()),
                            ("OK", "DISPATCHED")
                        );
                    }
                    if item.source_kind == "queue" {
                        left.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            }
        });
    }
    workers.join_all().await;
    let keys = i64::try_from(KEYS).unwrap();
    assert_eq!(db.one::<i64>("SELECT sum(version)::bigint FROM kv_entries").await, messages * keys);
    assert_eq!(db.one::<i64>("SELECT count(DISTINCT payload) FROM queue_messages").await, messages);
    assert_eq!(db.count("queue_messages").await, messages);
    assert_eq!(
        db.one::<i64>(
            "SELECT (SELECT count(*) FROM trigger_outbox_pending WHERE source_kind = 'kv') \
             + (SELECT count(*) FROM trigger_outbox_executions WHERE source_kind = 'kv')"
        )
        .await,
        messages,
        "each write of key0 fired once"
    );
    db.assert_items_hold().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_claims_hand_each_item_to_one_worker() {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
    db.push("other", &manifest(&[("q", "queue", "jobs")])).await;
    for app in ["shop", "other"] {
        db.sql(&format!("SELECT count(send_to_queue('{app}', 'jobs', to_jsonb(n))) FROM generate_series(1, 200) n")).await;
    }
    let mut workers = JoinSet::new();
    for n in 0..WORKERS {
        let mut connection = db.as_role("symphony_executor").await;
        workers.spawn(async move {
            let mut ids = Vec::new();
            loop {
                let items = claim_on(&mut connection, &format!("w{n}"), 7).await;
                // Others may hold what is due for a moment: nothing is only nothing once all is leased.
                if items.is_empty() {
                    let due: i64 = sqlx::query_scalar(
                        "SELECT count(*) FROM trigger_outbox_pending WHERE lease_token IS NULL",
                    )
                    .fetch_one(&mut connection)
                    .await
                    .unwrap();
                    if due == 0 {
                        return ids;
                    }
                }
                ids.extend(items.iter().map(|item| item.id));
            }
        });
    }
    let mut ids = workers.join_all().await.concat();
    assert_eq!(ids.len(), 400);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_that_roll_back_fire_nothing_and_all_others_fire_everything() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &manifest(&[("k", "kv", "*"), ("q", "queue", "jobs"), ("n", "pubsub", "news")]),
    )
    .await;
    let mut producers = JoinSet::new();
    for producer in 0..6 {
        let mut connection = db.as_role("symphony_ingest").await;
        producers.spawn(async move {
            for n in 0..20 {
                let end = if (producer + n) % 2 == 0 { "COMMIT" } else { "ROLLBACK" };
                let sql = format!(
                    "BEGIN; SELECT kv_set('shop', 'p{producer}/{n}', '\"{end}\"'), send_to_queue('shop', 'jobs', '\"{end}\"'), \
                     publish_topic('shop', 'news', '\"{end}\"'); {end}"
                );
                run(&mut connection, &sql).await.unwrap();
            }
        });
    }
    producers.join_all().await;
    assert_eq!(db.count("trigger_outbox_pending").await, 6 * 10 * 3);
    assert_eq!(db.count("trigger_outbox_pending WHERE payload::text LIKE '%ROLLBACK%'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_races_with_senders_loses_no_message() {
    let db = TestDb::new().await;
    let with_consumer = manifest(&[("q", "queue", "jobs")]);
    let without = manifest(&[]);
    db.push("shop", &without).await;
    let (senders, each) = (6_i64, 60_i64);
    let left = Arc::new(AtomicI64::new(senders));
    let mut tasks = JoinSet::new();
    for sender in 0..senders {
        let (mut connection, left) = (db.as_role("symphony_ingest").await, left.clone());
        tasks.spawn(async move {
            for n in 0..each {
                let isolation = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][usize::try_from(n % 3).unwrap()];
                // Above READ COMMITTED 40001 means: repeat the transaction.
                loop {
                    let sql = format!(
                        "BEGIN ISOLATION LEVEL {isolation}; SELECT send_to_queue('shop', 'jobs', '{}'); COMMIT",
                        sender * each + n
                    );
                    match run(&mut connection, &sql).await {
                        Ok(()) => break,
                        Err(error) => assert_eq!(error.code(), "40001", "{error}"),
                    }
                    run(&mut connection, "ROLLBACK").await.unwrap();
                }
            }
            left.fetch_sub(1, Ordering::SeqCst);
        });
    }
    for manifest in [with_consumer.clone(), without] {
        let (mut connection, left) = (db.as_role("symphony_operator").await, left.clone());
        let push = format!("SELECT push_app('shop', {}, 'dana')", quoted(&manifest));
        tasks.spawn(async move {
            while left.load(Ordering::SeqCst) > 0 {
                run(&mut connection, &push).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    db.push("shop", &with_consumer).await;
    assert_eq!(db.count("queue_messages").await, 0, "every message has its consumer");
    assert_eq!(db.count("trigger_outbox_pending").await, senders * each);
    assert_eq!(
        db.one::<i64>("SELECT count(DISTINCT payload->'message') FROM trigger_outbox_pending")
            .await,
        senders * each
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_race_with_completions_never_deadlock() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("q", "queue", "jobs"), ("d", "dead_letter", "*")]);
    shop["queues"] = json!(["idle", "jobs", "mail"]);
    db.push("shop", &shop).await;
    let items = 200_i64;
    db.sql(&format!("SELECT count(send_to_queue('shop', 'jobs', to_jsonb(n))) FROM generate_series(1, {items}) n")).await;
    let left = Arc::new(AtomicI64::new(items));
    let mut tasks = JoinSet::new();
    let barrier = Arc::new(Barrier::new(6));
    for n in 0..4 {
        let (mut connection, left, barrier) =
            (db.as_role("symphony_executor").await, left.clone(), barrier.clone());
        tasks.spawn(async move {
            let worker = format!("w{n}");
            // Two queues in opposite orders, against a push that locks both.
            let mut effects = vec![
                json!({"kind": "queue_send", "queue": "mail", "message": 1}),
                json!({"kind": "queue_send", "queue": "idle", "message": 1}),
            ];
            if n % 2 == 1 {
                effects.reverse();
            }
            barrier.wait().await;
            while left.load(Ordering::SeqCst) > 0 {
                for item in claim_on(&mut connection, &worker, 3).await {
                    let settled =
                        settle_on(&mut connection, &worker, &item, "DISPATCHED", &json!(effects))
                            .await
                            .unwrap();
                    assert_eq!(settled.outcome, "DISPATCHED");
                    left.fetch_sub(1, Ordering::SeqCst);
                }
            }
        });
    }
    for _ in 0..2 {
        let (mut connection, left, barrier) =
            (db.as_role("symphony_operator").await, left.clone(), barrier.clone());
        let push = format!("SELECT push_app('shop', {}, 'dana')", quoted(&shop));
        tasks.spawn(async move {
            barrier.wait().await;
            while left.load(Ordering::SeqCst) > 0 {
                run(&mut connection, &push).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(db.count("queue_messages").await, items * 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_who_pause_and_resume_one_app_at_once_never_deadlock() {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
    let mut operators = JoinSet::new();
    for n in 0..WORKERS {
        let mut connection = db.as_role("symphony_operator").await;
        operators.spawn(async move {
            let act = if n % 2 == 0 { "pause_app" } else { "resume_app" };
            for _ in 0..25 {
                let act = format!("SELECT {act}('shop', 'dana', 'r', p_dry_run => false)");
                run(&mut connection, &act).await.unwrap();
            }
        });
    }
    operators.join_all().await;
}
