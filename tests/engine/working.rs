//! The engine against a real database: claiming, bounds, order, leases, stopping, wake-ups.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use symphony::engine::BreakerSettings;
use symphony::engine::{self, Engine, EngineSettings, LaneMetrics, Points, Start};
use symphony::lanes::payments::PaymentLane;
use symphony::lanes::payments::rail::{Answer, Payment, Terms, Verdict};

use super::bank::{
    Bank, Reply, accepted, pending, rail, settings, setup, short_lease, start, start_with, terms,
    until_empty,
};
use crate::support::{TestDb, payment, until};

#[tokio::test]
async fn every_payment_is_executed_once_and_dispatched_once() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    db.enqueue_stream("acme", "sepa", 300).await;
    let engine = start(
        &db,
        vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))],
    );
    db.enqueue_stream("brio", "sepa", 300).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.executed.lock().unwrap().len(), 600);
    assert!(bank.executed.lock().unwrap().values().all(|times| *times == 1));
    assert!(bank.most_at_once.load(Ordering::SeqCst) <= 16, "the rail's bound");
    assert_eq!(
        db.count(
            "payment_outbox_attempts WHERE state = 'DISPATCHED' AND rail_reference = 'BANK-1'"
        )
        .await,
        600
    );
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn each_verdict_ends_as_the_ledger_state_it_means() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let script = |_: &Bank, payment: &Payment, _: usize| match payment.instruction_id.as_str() {
        "refused" => {
            Reply::Not(Answer { code: Some("AC04".into()), ..Answer::new(Verdict::Refused) })
        }
        "retryable" => Reply::Not(Answer {
            code: Some("429".into()),
            retry_after: Some(Duration::from_hours(1)),
            ..Answer::new(Verdict::Retryable)
        }),
        _ => Reply::Executed(accepted()),
    };
    let mut ids = HashMap::new();
    for name in ["accepted", "refused", "retryable"] {
        ids.insert(name, db.enqueue(&payment(name, "acme", "sepa")).await.outbox_id);
    }
    let engine = start(&db, vec![setup("sepa", rail(&bank, terms(), script))]);
    until("three outcomes", async || db.count("payment_outbox_attempts").await == 3).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(ids["accepted"]).await, ["1 DISPATCHED"]);
    assert_eq!(db.ledger(ids["refused"]).await, ["1 FAILED"]);
    assert_eq!(db.ledger(ids["retryable"]).await, ["1 RETRYABLE"]);
    // Retry-After was respected: an hour, not the standard backoff.
    assert!(db.one::<bool>("SELECT next_attempt_at > clock_timestamp() + INTERVAL '50 minutes' FROM payment_outbox_pending").await);
}

#[tokio::test]
async fn a_fifo_lane_runs_in_order_without_waiting_for_polls() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    db.make_fifo("instant", "block").await;
    for participant in ["acme", "brio", "cato"] {
        db.enqueue_stream(participant, "instant", 40).await;
    }
    // Polls an hour apart: only the successor's own wake-up can drive it.
    let patient =
        EngineSettings { poll: (Duration::from_hours(1), Duration::from_hours(1)), ..settings() };
    let engine = start_with(
        &db,
        vec![setup("instant", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))],
        patient,
        Points::default(),
    );
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    let mut last: HashMap<String, i64> = HashMap::new();
    for (participant, number) in bank.order.lock().unwrap().iter() {
        let before = last.insert(participant.clone(), *number).unwrap_or(0);
        assert_eq!(*number, before + 1, "{participant}");
    }
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_stop_gives_back_what_was_not_sent_and_waits_for_what_was() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    db.enqueue_stream("acme", "sepa", 32).await;
    let mut narrow =
        setup("sepa", rail(&bank, terms(), |_, _, _| Reply::ExecutedLater(accepted())));
    narrow.concurrency_max = 4;
    let engine = start(&db, vec![narrow]);
    let metrics = engine.metrics().clone();
    until("four are under way and four wait", async || {
        bank.running.load(Ordering::SeqCst) == 4 && metrics.held_items.get() == 8
    })
    .await;
    let stopping = tokio::spawn(engine.stop());
    until("the waiting ones are given back", async || metrics.returned_unsent.get() == 4).await;
    for _ in 0..4 {
        bank.open.notify_one();
    }
    assert_eq!(stopping.await.unwrap(), 0);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 4);
    assert_eq!(db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await, 4);
    assert_eq!(db.count("payment_outbox_pending WHERE lease_token IS NULL AND attempt_count = 0 AND NOT must_inquire").await, 28);
}

#[tokio::test]
async fn what_is_still_in_flight_when_the_time_to_stop_is_up_is_unknown() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let impatient = EngineSettings { shutdown: Duration::from_millis(100), ..settings() };
    let engine = start_with(
        &db,
        vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::ExecutedSilence))],
        impatient,
        Points::default(),
    );
    until("it is under way", async || bank.running.load(Ordering::SeqCst) == 1).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE"]);
    assert!(
        db.one::<bool>(
            "SELECT outcome_unknown AND error_code = 'SHUTDOWN' FROM payment_outbox_attempts"
        )
        .await
    );
}

#[tokio::test]
async fn a_lease_is_renewed_for_as_long_as_its_dispatch_takes() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    // The lease ends after 3 seconds, the call is answered after its first renewal.
    let short = short_lease();
    let slow = rail(&bank, terms(), |_, _, _| Reply::ExecutedLater(accepted()));
    let engine = start_with(&db, vec![setup("sepa", slow)], short, Points::default());
    until("it is under way", async || bank.running.load(Ordering::SeqCst) == 1).await;
    let granted: String = db.one("SELECT lease_expires_at::text FROM payment_outbox_pending").await;
    until("the lease was renewed", async || {
        db.count(&format!("payment_outbox_pending WHERE lease_expires_at > '{granted}'")).await == 1
    })
    .await;
    bank.open.notify_one();
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 DISPATCHED"]);
}

#[tokio::test]
async fn a_rail_in_trouble_is_left_alone_until_a_probe_succeeds() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    db.enqueue_stream("acme", "sepa", 40).await;
    let script = |_: &Bank, _: &Payment, nth: usize| {
        if nth < 8 {
            Reply::Not(Answer {
                retry_after: Some(Duration::ZERO),
                ..Answer::trouble(Verdict::Retryable, "CONNECT", "refused")
            })
        } else {
            Reply::Executed(accepted())
        }
    };
    let mut guarded = setup("sepa", rail(&bank, terms(), script));
    guarded.concurrency_max = 1;
    guarded.breaker = BreakerSettings {
        failures_to_open: 3,
        open_for: Duration::from_millis(50),
        open_for_max: Duration::from_millis(200),
    };
    let engine = start(&db, vec![guarded]);
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    // While it was open, single probes went out: far fewer failures than items.
    assert_eq!(db.count("payment_outbox_attempts WHERE state = 'RETRYABLE'").await, 8);
    assert_eq!(db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await, 40);
}

#[tokio::test]
async fn a_paused_rail_gets_nothing_until_it_is_resumed() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let act = crate::support::act();
    let switch = symphony::domain::Switch::Rail("sepa".to_owned());
    db.enqueue_stream("acme", "sepa", 10).await;
    db.enqueue_stream("acme", "other", 10).await;
    db.database.operator().pause(&switch, &act).await.unwrap();
    let accept = |_: &Bank, _: &Payment, _: usize| Reply::Executed(accepted());
    let engine = start(
        &db,
        vec![
            setup("sepa", rail(&bank, terms(), accept)),
            setup("other", rail(&bank, terms(), accept)),
        ],
    );
    until("the other rail is done", async || pending(&db).await == 10).await;
    assert_eq!(db.count("payment_outbox_attempts WHERE rail_type = 'sepa'").await, 0);
    db.database.operator().resume(&switch, &act).await.unwrap();
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
}

#[tokio::test]
async fn the_leases_of_a_lost_worker_are_ended_by_the_repair_and_counted() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let items = db.enqueue_stream("acme", "sepa", 3).await;
    db.claim("lost", 3).await;
    for item in &items {
        db.expire(*item).await;
    }
    // Paused, so that no claim takes them over: that is no repair.
    let (lane, act) = (symphony::domain::Switch::Payments, crate::support::act());
    db.database.operator().pause(&lane, &act).await.unwrap();
    let often = EngineSettings {
        repair: (Duration::from_millis(50), Duration::from_millis(100)),
        ..settings()
    };
    let rails = vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))];
    let engine = start_with(&db, rails, often, Points::default());
    let metrics = engine.metrics().clone();
    until("they are counted", async || metrics.reaper_requeues.get() == 3).await;
    assert_eq!(db.count("payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'").await, 3);
    let page = symphony_server::metrics::render(
        &[("payments", metrics)],
        &symphony_server::metrics::Known::default(),
    );
    assert!(page.contains("reaper_requeues_total{lane=\"payments\"} 3"), "{page}");
    db.database.operator().resume(&lane, &act).await.unwrap();
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
}

#[tokio::test]
async fn a_second_terminal_outcome_is_counted_as_blocked_and_is_no_integrity_alarm() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let slow = rail(&bank, terms(), |_, _, _| Reply::ExecutedLater(accepted()));
    let engine = start(&db, vec![setup("sepa", slow)]);
    let metrics = engine.metrics().clone();
    until("it is under way", async || bank.running.load(Ordering::SeqCst) == 1).await;
    // A restore gone wrong: the item is pending although the ledger has its end.
    db.sql(
        "INSERT INTO payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, \
             attempt_no, state, completed_at, worker_id) \
         SELECT outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, 1, 'FAILED', now(), 'x' \
           FROM payment_outbox_pending",
    )
    .await;
    bank.open.notify_one();
    until("the yes is kept as evidence", async || metrics.late_outcomes.get() == 1).await;
    assert_eq!((metrics.terminal_blocked.get(), metrics.integrity_alarms.get()), (1, 0));
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'TERMINAL_BLOCKED'").await, 1);
    assert_eq!(db.count("outbox_incidents").await, 1, "the ledger says FAILED, the rail said yes");
    assert_eq!(db.ledger(item).await, ["1 FAILED"]);
    engine.stop().await;
}

#[tokio::test]
async fn with_notify_disabled_the_poll_loop_drives_it() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    db.sql(
        "ALTER TABLE payment_outbox_pending DISABLE TRIGGER payment_outbox_pending_wakes_workers",
    )
    .await;
    let quick = EngineSettings {
        poll: (Duration::from_millis(20), Duration::from_millis(40)),
        ..settings()
    };
    let rails = vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))];
    let engine = start_with(&db, rails, quick, Points::default());
    let metrics = engine.metrics().clone();
    // Whatever starting brings is over: it listens, it is the hint leader, and its claims come back empty.
    until("it is idle", async || {
        metrics.hint_leader.get() == 1
            && metrics.listener_up.get() == 1
            && metrics.empty_claims.get() >= 3
    })
    .await;
    for n in 0..3 {
        let (hints, empty) = (metrics.notify_wakeups.get(), metrics.empty_claims.get());
        until("it polls", async || metrics.empty_claims.get() > empty).await;
        db.enqueue(&payment(&format!("i{n}"), "acme", "sepa")).await;
        until_empty(&db).await;
        assert_eq!(metrics.notify_wakeups.get(), hints, "no hint led to it");
    }
    assert_eq!(engine.stop().await, 0);
}

#[tokio::test]
async fn a_flood_of_hints_by_a_stranger_leads_to_few_claims() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let patient =
        EngineSettings { poll: (Duration::from_hours(1), Duration::from_hours(1)), ..settings() };
    let rails = vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))];
    let engine = start_with(&db, rails, patient, Points::default());
    let metrics = engine.metrics().clone();
    until("it follows hints", async || {
        metrics.hint_leader.get() == 1 && metrics.listener_up.get() == 1
    })
    .await;
    // Whoever has a login can do this.
    let mut stranger = db.as_role("symphony_auth").await;
    let before = metrics.claim_batches.get();
    let flood = "SELECT pg_notify('outbox_pending', 'new_work')";
    let started = std::time::Instant::now();
    for _ in 0..1_000 {
        sqlx::query(flood).execute(&mut stranger).await.unwrap();
    }
    let made = metrics.claim_batches.get() - before;
    // 25 ms after the first, then twice as long each time: six in the first second, one in every 0.8 s or more after.
    let most = 8 + started.elapsed().as_secs() * 2;
    assert!(made <= most, "a thousand hints in {:?} led to {made} claims", started.elapsed());
    db.enqueue(&payment("honest", "acme", "sepa")).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
}

#[tokio::test]
async fn one_hint_leader_follows_hints_and_another_takes_over_when_it_leaves() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let patient =
        EngineSettings { poll: (Duration::from_hours(1), Duration::from_hours(1)), ..settings() };
    let accept = |_: &Bank, _: &Payment, _: usize| Reply::Executed(accepted());
    let mut workers: Vec<Engine> = (0..8)
        .map(|_| {
            let rails = vec![setup("sepa", rail(&bank, terms(), accept))];
            start_with(&db, rails, patient.clone(), Points::default())
        })
        .collect();
    for round in 1..=3u64 {
        until("one hint leader, all listening", async || {
            workers.iter().filter(|w| w.metrics().hint_leader.get() == 1).count() == 1
                && workers.iter().all(|w| w.metrics().listener_up.get() == 1)
        })
        .await;
        let claims = |workers: &[Engine]| -> u64 {
            workers.iter().map(|w| w.metrics().claim_batches.get()).sum()
        };
        let before = claims(&workers);
        for n in 0..20 {
            db.enqueue(&payment(&format!("{round}-{n}"), "acme", "sepa")).await;
            until_empty(&db).await;
        }
        let made = claims(&workers) - before;
        assert!(made <= 60, "20 enqueues led to {made} claims by {} workers", workers.len());
        let leader = workers.iter().position(|w| w.metrics().hint_leader.get() == 1).unwrap();
        assert_eq!(workers.remove(leader).stop().await, 0);
    }
    for worker in workers {
        assert_eq!(worker.stop().await, 0);
    }
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_refused_before_anything_is_claimed() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    db.enqueue_stream("acme", "sepa", 1).await;
    let slow = Terms { timeout: Duration::from_secs(30), ..terms() };
    let rails = vec![setup("sepa", rail(&bank, slow, |_, _, _| Reply::Executed(accepted())))];
    let refused = Engine::start(Start {
        lane: PaymentLane::new(db.database.worker(), engine::new_worker_id("test"), rails),
        database: db.database.clone(),
        listen: db.options.clone(),
        settings: settings(),
        metrics: Arc::new(LaneMetrics::default()),
        points: Points::default(),
    });
    assert_eq!(refused.unwrap_err().field, "worker.lease_seconds");
    assert_eq!(db.count("payment_outbox_pending WHERE lease_token IS NOT NULL").await, 0);
}
