//! Figures that tell the truth: what a claim took over, what is parked, and who counts for all.

use std::sync::Arc;
use std::time::Duration;

use symphony::db::{EndedLeases, EventClaim, LaneLease as _, TriggerLease};
use symphony::domain::{Outcome, Switch};
use symphony::engine::Points;
use symphony_server::metrics::{Figures, Known, render};

use super::bank::{Bank, Reply, accepted, rail, settings, setup, start_with, terms, until_empty};
use crate::support::{TestDb, act, payment, run, until};

const FRESH: Duration = Duration::from_secs(5);

#[tokio::test]
async fn what_a_claim_takes_over_counts_as_requeued_and_as_zombies() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let items = db.enqueue_stream("acme", "sepa", 3).await;
    for worker in ["lost", "lost as well"] {
        db.claim(worker, 3).await;
        for item in &items {
            db.expire(*item).await;
        }
    }
    // The first one has lost a worker twice by now, which the claim above wrote down: a third one parks it.
    let third = items[0];
    db.claim("and lost", 1).await;
    db.expire(third).await;
    let before = db.count("payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'").await;
    // Nothing is repaired for an hour: whatever is taken over, a claim takes over.
    let hour = Duration::from_hours(1);
    let seldom = symphony::engine::EngineSettings { repair: (hour, hour), ..settings() };
    let rails = vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))];
    let engine = start_with(&db, rails, seldom, Points::default());
    let metrics = engine.metrics().clone();
    until("all but one are paid", async || {
        db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await == 2
    })
    .await;
    let written = db.count("payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'").await - before;
    let page = render(&[("payments", metrics.clone())], &Known::default());
    for (name, count) in [
        ("reaper_requeues_total{lane=\"payments\"}", written),
        ("attempts_total{lane=\"payments\",state=\"ZOMBIE_REQUEUE\"}", written),
        ("parked_items_total{lane=\"payments\"}", 1),
    ] {
        assert!(page.lines().any(|line| line == format!("{name} {count}")), "{name}\n{page}");
    }
    assert_eq!((written, db.state(third).await.as_str()), (3, "PARKED"));
    assert_eq!(engine.stop().await, 0);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_claim_that_only_parks_what_a_lost_worker_held_says_so() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    for _ in 0..3 {
        db.claim_one("lost").await;
        db.expire(item).await;
    }
    let request = symphony::db::PaymentClaim {
        endpoints: None,
        worker_id: "w",
        batch_size: 10,
        lease_seconds: 60,
        rails: None,
        due_from: None,
    };
    let claim = db.database.worker().claim_payments(&request).await.unwrap();
    assert_eq!(claim.items.len(), 0);
    assert_eq!(claim.ended, EndedLeases { ended: 1, zombies: 1, parked: 1, failed: 0 });
    let again = db.database.worker().claim_payments(&request).await.unwrap();
    assert_eq!(again.ended, EndedLeases::default(), "the next transaction starts from nothing");
}

#[tokio::test]
async fn a_claim_of_events_counts_all_that_lost_workers_had_not_answered() {
    let db = TestDb::new().await;
    db.tell_of("a key", 30).await;
    assert_eq!(db.claim_events("lost", 50).await.len(), 30);
    db.expire_buckets().await;
    // A smaller window: most of what it makes due again is not handed out.
    let claim = EventClaim { worker_id: "w", buckets_max: 256, window_max: 5, lease_seconds: 60 };
    let claimed = db.database.worker().claim_events(&claim).await.unwrap();
    assert_eq!(claimed.events.len(), 5);
    assert_eq!(claimed.ended, EndedLeases { ended: 30, zombies: 30, parked: 0, failed: 0 });
    assert_eq!(db.count("event_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'").await, 30);
}

#[tokio::test]
async fn a_repair_of_triggers_counts_what_it_wrote() {
    let db = TestDb::new().await;
    db.push("shop", &crate::triggers::manifest(&[("t", "kv", "*")])).await;
    for key in ["a", "b", "c"] {
        db.kv_set("shop", key, &serde_json::json!(1)).await;
    }
    assert_eq!(db.claim_items("lost", 3).await.len(), 3);
    db.expire_items().await;
    // One of them on its last attempt.
    db.sql(
        "UPDATE trigger_outbox_pending SET attempt_count = attempts_max - 1 \
          WHERE id = (SELECT id FROM trigger_outbox_pending ORDER BY id LIMIT 1)",
    )
    .await;
    let repaired = db.database.worker().repair::<TriggerLease>("w", 10).await.unwrap();
    let mut all = EndedLeases::default();
    for item in &repaired {
        all += TriggerLease::ended(item);
    }
    assert_eq!(all, EndedLeases { ended: 3, zombies: 2, parked: 0, failed: 1 });
    for (state, rows) in [("ZOMBIE_REQUEUE", 2), ("FAILED", 1)] {
        let from = format!("trigger_outbox_attempts WHERE state = '{state}'");
        assert_eq!(db.count(&from).await, rows, "{state}");
    }
}

#[tokio::test]
async fn the_oldest_pending_age_leaves_out_what_is_parked() {
    let db = TestDb::new().await;
    let parked = db.ended(&payment("parked", "acme", "sepa"), "TIMEOUT", Outcome::Unknown).await;
    let waiting = db.enqueue(&payment("waiting", "acme", "sepa")).await.outbox_id;
    for (item, age) in [(parked, "3 hours"), (waiting, "2 minutes")] {
        db.sql(&format!(
            "UPDATE payment_outbox_pending SET created_at = clock_timestamp() - INTERVAL '{age}' \
              WHERE outbox_id = '{item}'"
        ))
        .await;
    }
    let lanes = db.database.auditor().status().await.unwrap();
    let payments = &lanes[0];
    assert_eq!((payments.pending, payments.parked_count), (2, 1));
    assert_eq!(payments.oldest_pending_age_seconds / 60, 2, "{payments:?}");
    assert_eq!(payments.oldest_parked_age_seconds / 3600, 3, "{payments:?}");
    let page = render(&[], &Known { database_up: Some(true), lanes });
    let age = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap()
    };
    assert_eq!(age("oldest_pending_age_seconds{lane=\"payments\"}") / 60, 2);
    assert_eq!(age("oldest_parked_age_seconds{lane=\"payments\"}") / 3600, 3);
}

#[tokio::test]
async fn the_oldest_pending_age_leaves_out_what_a_person_has_stopped() {
    let db = TestDb::new().await;
    db.make_fifo("sepa", "block").await;
    let operator = db.database.operator();
    let head = db.enqueue(&payment("head", "acme", "sepa")).await.outbox_id;
    for (instruction, participant, rail) in [
        ("behind", "acme", "sepa"),
        ("of a paused rail", "acme", "wire"),
        ("of a paused participant", "brio", "ach"),
    ] {
        db.enqueue(&payment(instruction, participant, rail)).await;
    }
    operator.park_payment(head, &act()).await.unwrap();
    operator.pause(&Switch::Rail("wire".into()), &act()).await.unwrap();
    operator.pause(&Switch::Participant("brio".into()), &act()).await.unwrap();
    // A claim sets aside what it may not take.
    assert_eq!(db.claim("w", 10).await.len(), 0);
    db.push("shop", &crate::triggers::manifest(&[("t", "kv", "*")])).await;
    db.kv_set("shop", "a", &serde_json::json!(1)).await;
    operator.pause(&Switch::App("shop".into()), &act()).await.unwrap();
    db.tell_of("a key", 1).await;
    operator.pause(&Switch::Events, &act()).await.unwrap();
    let older =
        |table: &str| format!("UPDATE {table} SET created_at = created_at - INTERVAL '3 hours'");
    db.sql(&older("payment_outbox_pending")).await;
    db.sql(&older("trigger_outbox_pending")).await;
    db.sql(&format!(
        "ALTER TABLE event_outbox_log DISABLE TRIGGER USER; {}; ALTER TABLE event_outbox_log ENABLE TRIGGER USER",
        older("event_outbox_log")
    ))
    .await;
    let ages = async || {
        let lanes = db.database.auditor().status().await.unwrap();
        let hours = |seconds: i64| seconds / 3_600;
        lanes
            .iter()
            .map(|l| (hours(l.oldest_pending_age_seconds), hours(l.oldest_stopped_age_seconds)))
            .collect::<Vec<_>>()
    };
    assert_eq!(ages().await, [(0, 3); 3], "all of it is stopped");
    // What nobody stopped has the age of before.
    for switch in [Switch::Rail("wire".into()), Switch::App("shop".into()), Switch::Events] {
        operator.resume(&switch, &act()).await.unwrap();
    }
    assert_eq!(ages().await, [(3, 3), (3, 0), (3, 0)]);
    operator.pause(&Switch::Payments, &act()).await.unwrap();
    assert_eq!(ages().await[0], (0, 3), "a paused lane is stopped as a whole");
}

async fn counted_times(db: &TestDb) -> i64 {
    db.one("SELECT counted_times FROM outbox_shared_figures").await
}

#[tokio::test]
async fn one_process_at_a_time_counts_and_all_serve_what_it_counted() {
    let db = TestDb::new().await;
    db.enqueue_stream("acme", "sepa", 7).await;
    let processes: Vec<_> = (0..8).map(|_| Figures::new(db.database.clone())).collect();
    let first = processes[0].known().await;
    assert_eq!(first.database_up, Some(true));
    assert_eq!(first.lanes[0].pending, 7);
    db.enqueue_stream("brio", "sepa", 1).await;
    for process in &processes[1..] {
        assert_eq!(process.known().await.lanes, first.lanes, "as it was counted for all");
    }
    assert_eq!(counted_times(&db).await, 1);
    // Older than they may be: the next one counts.
    db.sql("UPDATE outbox_shared_figures SET counted_at = counted_at - INTERVAL '6 seconds'").await;
    let worker = db.database.worker();
    assert_eq!(worker.status(FRESH).await.unwrap()[0].pending, 8);
    assert_eq!(counted_times(&db).await, 2);
}

#[tokio::test]
async fn whoever_finds_another_process_counting_serves_what_is_on_record() {
    let db = TestDb::new().await;
    let worker = db.database.worker();
    assert_eq!(worker.status(FRESH).await.unwrap()[0].pending, 0);
    db.enqueue_stream("acme", "sepa", 7).await;
    let age = |seconds: u32| {
        format!(
            "UPDATE outbox_shared_figures SET counted_at = clock_timestamp() - INTERVAL '{seconds} seconds'"
        )
    };
    db.sql(&age(30)).await;
    let mut counting = db.admin().await;
    run(&mut counting, "BEGIN; SELECT FROM outbox_shared_figures FOR UPDATE").await.unwrap();
    assert_eq!(worker.status(FRESH).await.unwrap()[0].pending, 0, "half a minute old");
    run(&mut counting, "ROLLBACK").await.unwrap();
    db.sql(&age(61)).await;
    run(&mut counting, "BEGIN; SELECT FROM outbox_shared_figures FOR UPDATE").await.unwrap();
    assert_eq!(worker.status(FRESH).await.unwrap(), [], "too old to be told to anybody");
    run(&mut counting, "ROLLBACK").await.unwrap();
    // Of a time to come: a clock was put back.
    db.sql(&age(0).replace(" - ", " + INTERVAL '1 hour' - ")).await;
    assert_eq!(worker.status(FRESH).await.unwrap()[0].pending, 7);
}

#[tokio::test]
async fn live_workers_are_those_that_spoke_lately() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let live = async || db.database.auditor().status().await.unwrap()[0].live_worker_count;
    assert_eq!(live().await, 0);
    let rails = vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))];
    let engine = start_with(&db, rails, settings(), Points::default());
    until("it has spoken", async || live().await == 1).await;
    db.sql("UPDATE outbox_destinations SET reported_at = reported_at - INTERVAL '1 minute'").await;
    until("it speaks again", async || live().await == 1).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(live().await, 0, "it has said that it is gone");
}
