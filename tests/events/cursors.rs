//! Claims and completions: order within a key, blocked keys, parts of windows, lost workers.

use symphony::db::{BucketLease, EventClaim, EventRecorded, EventState};

use super::{FAILED, RETRYABLE, event, ids, is_recorded, leases};
use crate::support::{TestDb, run};

const SENT: EventState = EventState::Dispatched;

#[tokio::test]
async fn a_window_is_handed_out_once_and_in_order() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 5).await;
    let first = db.claim_events("w1", 3).await;
    assert_eq!(ids(&first), told[..3]);
    assert!(db.claim_events("w2", 3).await.is_empty(), "the bucket is leased");
    let outcomes: Vec<_> = first.iter().map(|event| (event, SENT)).collect();
    let recorded = db.report("w1", &outcomes).await;
    assert!(recorded.iter().all(|one| *one == EventRecorded::Recorded { more: true }));
    let second = db.claim_events("w2", 3).await;
    assert_eq!(ids(&second), told[3..]);
    let outcomes: Vec<_> = second.iter().map(|event| (event, SENT)).collect();
    let recorded = db.report("w2", &outcomes).await;
    assert!(recorded.iter().all(|one| *one == EventRecorded::Recorded { more: false }));
    assert_eq!(db.count("event_outbox_cursors WHERE lease_token IS NOT NULL").await, 0);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn outcomes_come_in_any_order_and_in_parts_and_the_cursor_follows_the_answered_prefix() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 6).await;
    let events = db.claim_events("w", 6).await;
    let cursor = async || {
        db.one::<i64>(
            "SELECT count(*) FROM event_outbox_log l JOIN event_outbox_cursors c USING (bucket) WHERE l.position <= c.published_through",
        )
        .await
    };
    // What is answered | how far the cursor then is | whether the lease goes on
    for (part, through, leased) in
        [(vec![4], 0, 1), (vec![1, 0], 2, 1), (vec![5], 2, 1), (vec![2], 3, 1), (vec![3], 6, 0)]
    {
        let outcomes: Vec<_> = part.iter().map(|n: &usize| (&events[*n], SENT)).collect();
        assert!(db.report("w", &outcomes).await.iter().all(is_recorded), "{part:?}");
        assert_eq!(cursor().await, through, "after {part:?}");
        let held = db.count("event_outbox_cursors WHERE lease_token IS NOT NULL").await;
        assert_eq!(held, leased, "after {part:?}");
    }
    for id in told {
        assert_eq!(db.event_ledger(id).await, ["0.1 DISPATCHED"]);
    }
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_retry_holds_back_its_key_and_nobody_else() {
    let db = TestDb::new().await;
    // Two keys of one bucket.
    let (one, two): (String, String) = neighbours(&db).await;
    let told = db
        .tell(&[event(&one, 0), event(&two, 0), event(&one, 1), event(&two, 1), event(&one, 2)])
        .await;
    let events = db.claim_events("w", 4).await;
    assert_eq!(ids(&events), told[..4]);
    let recorded =
        db.report("w", &[(&events[0], RETRYABLE), (&events[1], SENT), (&events[3], SENT)]).await;
    assert!(recorded.iter().all(is_recorded));
    assert_eq!(
        db.count("event_outbox_cursors WHERE lease_token IS NOT NULL").await,
        0,
        "with its head, the key's rest is set aside"
    );
    assert!(db.claim_events("w", 4).await.is_empty(), "the key's last event waits behind its head");
    assert_eq!(db.count("event_outbox_waiting").await, 3);
    let more = db.tell(&[event(&two, 2)]).await;
    assert_eq!(db.publish_all("w").await, more);
    db.make_keys_due().await;
    assert_eq!(db.publish_all("w").await, [told[0], told[2], told[4]]);
    assert_eq!(db.count("event_outbox_waiting").await + db.count("event_outbox_blocked").await, 0);
    assert_eq!(db.event_ledger(told[0]).await, ["0.1 RETRYABLE", "0.2 DISPATCHED"]);
    assert_eq!(db.event_ledger(told[4]).await, ["0.1 DISPATCHED"]);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn retries_wait_as_the_contract_says() {
    let db = TestDb::new().await;
    db.tell_of("k", 1).await;
    for seconds in [1, 5, 30, 120, 600, 3600, 3600] {
        let events = db.claim_events("w", 50).await;
        db.report("w", &[(&events[0], RETRYABLE)]).await;
        let wait: f64 = db
            .one("SELECT extract(epoch FROM due_at - clock_timestamp())::float8 FROM event_outbox_blocked")
            .await;
        let wait = wait.round();
        assert!((wait - f64::from(seconds)).abs() <= 1.0, "{wait} instead of {seconds}");
        db.make_keys_due().await;
    }
    assert_eq!(db.claim_events("w", 50).await[0].attempt_count, 7);
}

#[tokio::test]
async fn what_was_not_sent_waits_without_an_attempt() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 2).await;
    let events = db.claim_events("w", 50).await;
    assert!(db.report("w", &[(&events[0], EventState::Unsent)]).await.iter().all(is_recorded));
    assert!(db.event_ledger(told[0]).await.is_empty());
    assert!(db.claim_events("w", 50).await.is_empty());
    db.make_keys_due().await;
    assert_eq!(db.publish_all("w").await, told);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_failed_event_blocks_its_key_or_is_passed_as_the_policy_says() {
    let db = TestDb::new().await;
    let told = db.tell_of("blocks", 3).await;
    let events = db.claim_events("w", 50).await;
    db.report("w", &[(&events[0], SENT), (&events[1], FAILED)]).await;
    db.make_keys_due().await;
    assert!(db.claim_events("w", 50).await.is_empty());
    assert_eq!(db.event_state(told[1]).await, "FAILED");
    assert_eq!(db.event_state(told[2]).await, "PENDING");

    let passed = db.tell_of("passes", 3).await;
    let events = db.claim_events("w", 50).await;
    assert_eq!(ids(&events), passed);
    let failed = EventState::Failed { key_continues: true };
    db.report("w", &[(&events[0], failed), (&events[1], SENT), (&events[2], SENT)]).await;
    assert_eq!(db.event_state(passed[0]).await, "FAILED");
    assert_eq!(db.event_state(passed[2]).await, "SENT");
    assert_eq!(db.count("event_outbox_dead_letters WHERE blocks_its_key").await, 1);
    assert_eq!(db.count("event_outbox_dead_letters").await, 2);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_lost_workers_events_come_back_with_a_trace_and_its_answered_ones_do_not() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 4).await;
    let events = db.claim_events("lost", 4).await;
    db.report("lost", &[(&events[0], SENT), (&events[2], SENT)]).await;
    db.expire_buckets().await;
    assert_eq!(
        db.report("lost", &[(&events[1], SENT)]).await,
        [EventRecorded::NotHeld],
        "an expired lease writes nothing"
    );
    let repaired = db.database.worker().repair::<BucketLease>("w", 256).await.unwrap();
    assert_eq!(repaired.iter().map(|one| one.event_id).collect::<Vec<_>>(), [told[1], told[3]]);
    assert_eq!(db.publish_all("w").await, [told[1], told[3]]);
    assert_eq!(db.event_ledger(told[0]).await, ["0.1 DISPATCHED"]);
    assert_eq!(db.event_ledger(told[1]).await, ["0.1 ZOMBIE_REQUEUE", "0.2 DISPATCHED"]);
    assert_eq!(db.event_ledger(told[2]).await, ["0.1 DISPATCHED"]);
    assert_eq!(
        db.count("event_outbox_events WHERE event_type = 'LEASE_EXPIRED_REPAIRED'").await,
        1
    );
    let figures = db.database.auditor().event_figures().await.unwrap();
    assert_eq!((figures.events, figures.sent, figures.lost), (4, 4, 0));
}

#[tokio::test]
async fn a_claim_takes_an_expired_lease_over_and_leaves_the_same_trace() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 3).await;
    let events = db.claim_events("lost", 50).await;
    db.report("lost", &[(&events[0], RETRYABLE)]).await;
    db.make_keys_due().await;
    let waiting = db.claim_events("lost", 50).await;
    assert_eq!(
        ids(&waiting),
        told,
        "a key whose time has come is handed out from where it stopped"
    );
    db.expire_buckets().await;
    let taken = db.claim_events("w", 50).await;
    assert_eq!(ids(&taken), told);
    assert_eq!(
        taken.iter().map(|event| event.attempt_count).collect::<Vec<_>>(),
        [1, 0, 0],
        "a lost worker is no try"
    );
    let outcomes: Vec<_> = taken.iter().map(|event| (event, SENT)).collect();
    assert!(db.report("w", &outcomes).await.iter().all(is_recorded));
    assert_eq!(
        db.event_ledger(told[0]).await,
        ["0.1 RETRYABLE", "0.2 ZOMBIE_REQUEUE", "0.3 DISPATCHED"]
    );
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_stopping_worker_gives_back_what_it_did_not_send_and_no_attempt_is_counted() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 4).await;
    let events = db.claim_events("stops", 4).await;
    db.report("stops", &[(&events[0], SENT), (&events[1], SENT)]).await;
    let returned = db.database.worker().return_unsent("stops", &leases(&events)).await.unwrap();
    assert!(returned.iter().all(|returned| *returned));
    assert_eq!(db.publish_all("w").await, told[2..]);
    for id in &told {
        assert_eq!(db.event_ledger(*id).await, ["0.1 DISPATCHED"]);
    }
    let again = db.database.worker().return_unsent("stops", &leases(&events)).await;
    assert!(again.unwrap().iter().all(|returned| !*returned), "the lease is over");
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_completion_whose_answer_was_lost_may_be_repeated() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 2).await;
    let events = db.claim_events("w", 50).await;
    let outcomes = [(&events[0], SENT), (&events[1], RETRYABLE)];
    assert!(db.report("w", &outcomes).await.iter().all(is_recorded));
    assert!(db.report("w", &outcomes).await.iter().all(is_recorded), "the same again");
    assert_eq!(db.event_ledger(told[0]).await, ["0.1 DISPATCHED"]);
    assert_eq!(db.event_ledger(told[1]).await, ["0.1 RETRYABLE"]);
    assert_eq!(
        db.report("w", &[(&events[0], RETRYABLE)]).await,
        [EventRecorded::TerminalExists],
        "another outcome is no repetition"
    );
    assert_eq!(db.report("x", &[(&events[1], SENT)]).await, [EventRecorded::NotHeld]);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn what_was_answered_out_of_turn_is_not_handed_out_again_by_a_shorter_window() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 10).await;
    let events = db.claim_events("w1", 10).await;
    let outcomes: Vec<_> = events[1..].iter().map(|event| (event, SENT)).collect();
    db.report("w1", &outcomes).await;
    db.database.worker().return_unsent("w1", &leases(&events)).await.unwrap();
    let events = db.claim_events("w2", 2).await;
    assert_eq!(ids(&events), told[..1]);
    assert!(db.report("w2", &[(&events[0], SENT)]).await.iter().all(is_recorded));
    assert!(db.claim_events("w3", 10).await.is_empty(), "all are published");
    let more = db.tell_of("k", 1).await;
    assert_eq!(db.publish_all("w3").await, more);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn renewal_extends_what_is_held_and_tells_what_is_lost() {
    let db = TestDb::new().await;
    db.tell_of("k", 1).await;
    let executor = db.database.worker();
    let held = leases(&db.claim_events("w", 50).await);
    assert_eq!(executor.renew("w", &held, 600).await.unwrap(), [true]);
    let long =
        "event_outbox_cursors WHERE lease_expires_at > clock_timestamp() + INTERVAL '500 seconds'";
    assert_eq!(db.count(long).await, 1);
    assert_eq!(executor.renew("w", &held, 1).await.unwrap(), [true]);
    assert_eq!(db.count(long).await, 1, "never shortened");
    assert_eq!(executor.renew("other", &held, 60).await.unwrap(), [false]);
    db.expire_buckets().await;
    assert_eq!(executor.renew("w", &held, 60).await.unwrap(), [false], "nor revived");
}

#[tokio::test]
async fn a_late_outcome_is_kept_as_evidence_and_a_contradiction_is_told() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 1).await;
    let late = db.claim_events("late", 50).await;
    db.expire_buckets().await;
    let events = db.claim_events("w", 50).await;
    db.report("w", &[(&events[0], FAILED)]).await;
    let outcome = symphony::db::EventOutcome::new(late[0].lease(), late[0].log_position, SENT);
    let conflict = db.database.worker().record_late_event("late", &outcome).await.unwrap();
    assert!(conflict, "published, though FAILED says it was not");
    assert_eq!(db.count(&format!("event_outbox_events WHERE event_type = 'LATE_OUTCOME' AND outbox_event = '{}' AND (details->>'conflict')::boolean", told[0])).await, 1);
    assert_eq!(db.event_state(told[0]).await, "FAILED", "evidence is not an outcome");
}

#[tokio::test]
async fn a_paused_lane_hands_nothing_out() {
    let db = TestDb::new().await;
    let told = db.tell_of("k", 1).await;
    let act = crate::support::act();
    let operator = db.database.operator();
    assert_eq!(
        operator.pause(&symphony::domain::Switch::Events, &act).await.unwrap().state_after,
        "PAUSED"
    );
    assert!(db.claim_events("w", 50).await.is_empty());
    assert_eq!(
        operator.resume(&symphony::domain::Switch::Events, &act).await.unwrap().state_before,
        "PAUSED"
    );
    assert_eq!(db.publish_all("w").await, told);
}

#[tokio::test]
async fn fifty_thousand_events_behind_a_blocked_key_are_passed_once() {
    let db = TestDb::new().await;
    let (blocked, free) = neighbours(&db).await;
    let head = db.tell_of(&blocked, 1).await;
    let events = db.claim_events("w", 50).await;
    db.report("w", &[(&events[0], FAILED)]).await;
    db.sql(&format!(
        "DO $$ BEGIN FOR i IN 1..25 LOOP PERFORM count(*) FROM enqueue_event_outbox_batch(ARRAY(SELECT jsonb_build_object(
            'envelope', jsonb_build_object('v', 1, 'eventId', gen_random_uuid(), 'occurredAt', '2026-11-15T12:00:00Z', 'tenantId', 't', 'type', 'a.b'),
            'key', jsonb_build_object('k', '{blocked}'), 'payload', '{{}}'::jsonb) FROM generate_series(1, 2000))); END LOOP; END $$"
    ))
    .await;
    let told = db.tell_of(&free, 3).await;
    let claim = EventClaim { worker_id: "w", buckets_max: 1, window_max: 4096, lease_seconds: 60 };
    let executor = db.database.worker();
    let mut claims = 0;
    let events = loop {
        claims += 1;
        assert!(claims < 30, "the window goes on past what is blocked");
        let events = executor.claim_events(&claim).await.unwrap().events;
        if !events.is_empty() {
            break events;
        }
    };
    assert_eq!(ids(&events), told);
    let outcomes: Vec<_> = events.iter().map(|event| (event, SENT)).collect();
    assert!(db.report("w", &outcomes).await.iter().all(is_recorded));
    assert_eq!(db.count("event_outbox_waiting").await, 50_000);
    // From here on only what is new is looked at.
    let plan: String = db
        .one("SELECT (SELECT count(*) FROM event_outbox_log l JOIN event_outbox_cursors c USING (bucket) WHERE l.position > c.published_through)::text")
        .await;
    assert_eq!(plan, "0");
    let more = db.tell_of(&free, 1).await;
    assert_eq!(ids(&executor.claim_events(&claim).await.unwrap().events), more);
    assert_eq!(db.event_state(head[0]).await, "FAILED");
}

#[tokio::test]
async fn what_a_claim_hands_out_is_bounded_after_an_outage_and_every_key_gets_its_share() {
    let db = TestDb::new().await;
    let keys: Vec<String> = db
        .one(
            "SELECT array_agg(k) FROM (SELECT 'key_' || g AS k FROM generate_series(1, 9000) g \
               WHERE symphony.event_bucket('key_' || g) = 7 LIMIT 10) ten",
        )
        .await;
    for key in &keys {
        db.tell_of(key, 30).await;
    }
    // The bus was away: every key is set aside.
    loop {
        let events = db.claim_events("w", 50).await;
        let mut heads: Vec<&symphony::db::ClaimedEvent> = Vec::new();
        for event in &events {
            if heads.iter().all(|head| head.event_key != event.event_key) {
                heads.push(event);
            }
        }
        if heads.is_empty() {
            break;
        }
        let outcomes: Vec<_> = heads.iter().map(|event| (*event, EventState::Unsent)).collect();
        assert!(db.report("w", &outcomes).await.iter().all(is_recorded));
    }
    assert_eq!(db.count("event_outbox_waiting").await, 300);
    db.make_keys_due().await;
    let events = db.claim_events("w", 50).await;
    assert_eq!(events.len(), 50, "not all 300");
    for key in &keys {
        assert_eq!(events.iter().filter(|event| event.event_key == *key).count(), 5, "{key}");
    }
    let outcomes: Vec<_> = events.iter().map(|event| (event, SENT)).collect();
    assert!(db.report("w", &outcomes).await.iter().all(is_recorded));
    assert_eq!(db.publish_all("w").await.len(), 250);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_blocked_key_makes_no_claim_read_the_ledger_whatever_the_statistics_say() {
    let db = TestDb::new().await;
    let (blocked, free) = neighbours(&db).await;
    // As after an installation: the planner knows the tables as empty.
    db.sql("ANALYZE").await;
    db.tell_of(&blocked, 1).await;
    let events = db.claim_events("w", 50).await;
    db.report("w", &[(&events[0], FAILED)]).await;
    for _ in 0..3 {
        db.tell_of(&free, 1_000).await;
    }
    db.publish_all("w").await;
    db.tell_of(&free, 50).await;
    let mut connection = db.admin().await;
    let claim = "SELECT count(*) FROM claim_event_outbox_batch(50, 'w', 60, 1, 50)";
    run(&mut connection, &format!("BEGIN; {claim}")).await.unwrap();
    // Of this transaction alone.
    let entries: i64 = sqlx::query_scalar(
        "SELECT pg_stat_get_xact_tuples_returned('event_outbox_attempts_one_terminal_per_event'::regclass)",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    run(&mut connection, "COMMIT").await.unwrap();
    assert_eq!(db.count("event_outbox_cursors WHERE unanswered = 50").await, 1);
    assert!(entries < 500, "{entries} of 3,000 ledger entries for a window of 50");
}

/// Two keys that share a bucket.
async fn neighbours(db: &TestDb) -> (String, String) {
    let keys: String = db
        .one("SELECT string_agg(k, ',' ORDER BY k) FROM (SELECT 'key_' || g AS k FROM generate_series(1, 5000) g \
               WHERE symphony.event_bucket('key_' || g) = 7 LIMIT 2) two")
        .await;
    let (one, two) = keys.split_once(',').unwrap();
    (one.to_owned(), two.to_owned())
}
