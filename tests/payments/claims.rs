//! Leases: claim, renew, return, mark, repair, pause.

use chrono::{DateTime, Duration, Utc};
use symphony::db::{PaymentClaim, PaymentLease};
use symphony::domain::{LeaseToken, Outcome, Switch};
use uuid::Uuid;

use crate::support::{TestDb, act, code, payment, run};

#[tokio::test]
async fn claim_leaves_the_row_and_sets_all_three_lease_columns() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await;
    let claimed = db.claim_one("w1").await;
    assert_eq!(claimed.outbox_id, item.outbox_id);
    let (by, token, live): (String, Uuid, bool) = sqlx::query_as(
        "SELECT claimed_by, lease_token, lease_expires_at > clock_timestamp() FROM payment_outbox_pending",
    )
    .fetch_one(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!((by.as_str(), LeaseToken(token), live), ("w1", claimed.lease_token, true));
    assert_eq!(db.count("payment_outbox_attempts").await, 0, "a claim writes no ledger row");
    assert!(db.claim("w2", 10).await.is_empty(), "a leased row is not claimed again");
}

#[tokio::test]
async fn half_a_lease_is_impossible() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "ach")).await;
    for half in [
        "claimed_by = 'w'",
        "lease_token = gen_random_uuid()",
        "lease_expires_at = now()",
        "claimed_by = 'w', lease_expires_at = now()",
    ] {
        let error =
            run(&mut db.admin().await, &format!("UPDATE payment_outbox_pending SET {half}"))
                .await
                .unwrap_err();
        assert!(error.to_string().contains("payment_outbox_pending_lease_is_whole"), "{error}");
    }
}

#[tokio::test]
async fn retry_keeps_outbox_id_and_sequence_id_and_attempt_count_only_grows() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await;
    let mut counts = Vec::new();
    for _ in 0..4 {
        let claimed = db.claim_one("w").await;
        assert_eq!((claimed.outbox_id, claimed.sequence_id), (item.outbox_id, item.sequence_id));
        counts.push(claimed.attempt_count);
        db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap();
    }
    assert_eq!(counts, [0, 1, 2, 3]);
    assert_eq!(
        db.ledger(item.outbox_id).await,
        ["1 RETRYABLE", "2 RETRYABLE", "3 RETRYABLE", "4 RETRYABLE"]
    );
}

#[tokio::test]
async fn a_cached_count_above_the_ledgers_is_never_lowered() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let count =
        async || -> i32 { db.one("SELECT attempt_count FROM payment_outbox_pending").await };
    // As after a restore of the queue: the ledger knows of fewer outcomes than were counted.
    db.sql("UPDATE payment_outbox_pending SET attempt_count = 15").await;
    let claimed = db.claim_one("w").await;
    db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap();
    assert_eq!(count().await, 15, "a retry");
    db.claim_one("w").await;
    db.expire(item).await;
    db.database.worker().repair::<PaymentLease>("w", 10).await.unwrap();
    assert_eq!(count().await, 15, "a repair");
    db.make_due(item).await;
    db.claim_one("w").await;
    db.expire(item).await;
    assert_eq!(db.claim_one("w").await.attempt_count, 15, "a takeover");
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 ZOMBIE_REQUEUE", "3 ZOMBIE_REQUEUE"]);
}

#[tokio::test]
async fn lease_expiry_is_repaired_row_due_again_one_zombie_requeue_attempt_no_last_plus_one() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let first = db.claim_one("w1").await;
    db.complete("w1", first.lease(), Outcome::Retryable).await.unwrap();
    let lost = db.claim_one("w1").await;
    assert!(
        db.database.worker().repair::<PaymentLease>("w2", 10).await.unwrap().is_empty(),
        "a live lease is not repaired"
    );
    db.expire(item).await;
    let repaired = db.database.worker().repair::<PaymentLease>("w2", 10).await.unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!(
        (
            repaired[0].outbox_id,
            repaired[0].attempt_no,
            repaired[0].worker_id.as_str(),
            repaired[0].parked
        ),
        (item, 2, "w1", false)
    );
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 ZOMBIE_REQUEUE"]);
    let (worker, token): (String, Uuid) = sqlx::query_as(
        "SELECT worker_id, lease_token FROM payment_outbox_attempts WHERE attempt_no = 2",
    )
    .fetch_one(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!(
        (worker.as_str(), LeaseToken(token)),
        ("w1", lost.lease_token),
        "the row carries the expired worker and token"
    );
    let soon: bool = db
        .one("SELECT lease_token IS NULL AND next_attempt_at BETWEEN clock_timestamp() AND clock_timestamp() + INTERVAL '1 second' FROM payment_outbox_pending")
        .await;
    assert!(soon, "due again in a second");
    assert!(
        db.database.worker().repair::<PaymentLease>("w2", 10).await.unwrap().is_empty(),
        "once"
    );
    db.make_due(item).await;
    assert!(db.claim_one("w2").await.must_inquire, "the lost worker may have sent it");
    assert_eq!(
        db.count("payment_outbox_events WHERE event_type = 'LEASE_EXPIRED_REPAIRED'").await,
        1
    );
}

#[tokio::test]
async fn taking_over_an_expired_lease_leaves_the_same_trace_as_a_repair() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    let lost = db.claim_one("w1").await;
    db.expire(item).await;
    let taken = db.claim_one("w2").await;
    assert!(taken.must_inquire);
    assert_ne!(taken.lease_token, lost.lease_token);
    assert_eq!(
        (db.ledger(item).await, taken.attempt_count),
        (vec!["1 ZOMBIE_REQUEUE".to_owned()], 1)
    );
    assert_eq!(
        db.count(
            "payment_outbox_events WHERE event_type = 'LEASE_EXPIRED_REPAIRED' AND worker_id = 'w2'"
        )
        .await,
        1
    );
}

#[tokio::test]
async fn the_third_zombie_in_a_row_parks_the_item() {
    for by_takeover in [false, true] {
        let db = TestDb::new().await;
        let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
        for n in 1..=3 {
            db.make_due(item).await;
            db.claim_one(&format!("w{n}")).await;
            db.expire(item).await;
            if by_takeover && n == 3 {
                assert!(db.claim("w4", 1).await.is_empty(), "parked instead of leased");
            } else {
                let repaired = db.database.worker().repair::<PaymentLease>("r", 10).await.unwrap();
                assert_eq!((repaired[0].attempt_no, repaired[0].parked), (n, n == 3));
            }
        }
        assert_eq!(
            db.ledger(item).await,
            ["1 ZOMBIE_REQUEUE", "2 ZOMBIE_REQUEUE", "3 ZOMBIE_REQUEUE"]
        );
        assert_eq!(db.state(item).await, "PARKED");
        assert_eq!(db.count("payment_outbox_events WHERE event_type = 'PARKED'").await, 1);
    }
}

#[tokio::test]
async fn zombies_that_are_not_in_a_row_do_not_park() {
    let db = TestDb::new().await;
    let item = db.enqueue(&payment("i", "p", "ach")).await.outbox_id;
    for outcome in ["zombie", "zombie", "retryable", "zombie", "zombie"] {
        db.make_due(item).await;
        let claimed = db.claim_one("w").await;
        if outcome == "zombie" {
            db.expire(item).await;
            assert!(!db.database.worker().repair::<PaymentLease>("r", 10).await.unwrap()[0].parked);
        } else {
            db.complete("w", claimed.lease(), Outcome::Retryable).await.unwrap();
        }
    }
}

#[tokio::test]
async fn on_a_rail_that_marks_what_was_not_marked_is_requeued_and_what_was_is_parked() {
    let db = TestDb::new().await;
    db.database
        .operator()
        .configure_rail("wire", &act(), None, None, Some(true), None)
        .await
        .unwrap();
    let ids = db.enqueue_stream("p", "wire", 2).await;
    let claimed = db.claim("w", 2).await;
    let marked =
        db.database.worker().mark_payments_sending("w", &[claimed[1].lease()]).await.unwrap();
    assert_eq!(marked, [(ids[1], true)]);
    for id in &ids {
        db.expire(*id).await;
    }
    let repaired = db.database.worker().repair::<PaymentLease>("r", 10).await.unwrap();
    assert_eq!(
        repaired.iter().map(|r| (r.outbox_id, r.parked)).collect::<Vec<_>>(),
        [(ids[0], false), (ids[1], true)]
    );
    db.make_due(ids[0]).await;
    assert!(!db.claim_one("w2").await.must_inquire, "provably unsent");
    assert_eq!(
        db.database.worker().mark_payments_sending("w", &[claimed[1].lease()]).await.unwrap(),
        [(ids[1], false)],
        "a lost lease is not marked"
    );
}

#[tokio::test]
async fn renewal_extends_what_is_held_and_names_what_was_lost() {
    let db = TestDb::new().await;
    let ids = db.enqueue_stream("p", "ach", 2).await;
    let claimed = db.claim("w", 2).await;
    db.expire(ids[1]).await;
    let leases: Vec<_> = claimed.iter().map(symphony::db::ClaimedPayment::lease).collect();
    let worker = db.database.worker();
    let renewed = worker.renew("w", &leases, 600).await.unwrap();
    assert_eq!(renewed, [true, false], "an expired lease is not revived");
    let expires_at = format!(
        "SELECT lease_expires_at FROM payment_outbox_pending WHERE outbox_id = '{}'",
        ids[0]
    );
    let until: DateTime<Utc> = db.one(&expires_at).await;
    assert!(until > Utc::now() + Duration::seconds(500));
    assert_eq!(worker.renew("w", &leases[..1], 1).await.unwrap(), [true]);
    assert_eq!(db.one::<DateTime<Utc>>(&expires_at).await, until, "a renewal never shortens");
    assert_eq!(worker.renew("thief", &leases[..1], 600).await.unwrap(), [false]);
}

#[tokio::test]
async fn what_was_never_sent_is_returned_without_a_trace_and_what_was_marked_is_not() {
    let db = TestDb::new().await;
    let ids = db.enqueue_stream("p", "ach", 3).await;
    let claimed = db.claim("w", 3).await;
    let leases: Vec<_> = claimed.iter().map(symphony::db::ClaimedPayment::lease).collect();
    db.database.worker().mark_payments_sending("w", &leases[1..2]).await.unwrap();
    db.expire(ids[2]).await;
    let returned = db.database.worker().return_unsent("w", &leases).await.unwrap();
    assert_eq!(returned, [true, false, false]);
    assert_eq!(db.count("payment_outbox_attempts").await, 0);
    let rails_claim = db.claim("w2", 10).await;
    let again = rails_claim.iter().find(|item| item.outbox_id == ids[0]).unwrap();
    assert_eq!(
        (again.attempt_count, again.must_inquire),
        (0, false),
        "as if it had never been claimed"
    );
}

#[tokio::test]
async fn claims_take_rails_in_equal_shares_and_the_oldest_first() {
    let db = TestDb::new().await;
    db.enqueue_stream("p", "deep", 100).await;
    db.enqueue_stream("p", "shallow", 3).await;
    assert_eq!(db.claim("w", 1).await[0].rail_type, "deep", "the oldest of all");
    let claimed = db.claim("w", 20).await;
    assert_eq!(claimed.len(), 20, "the share a rail leaves is filled from the others");
    assert_eq!(
        claimed.iter().filter(|item| item.rail_type == "shallow").count(),
        3,
        "a deep rail starves no shallow one"
    );
    let sorted = claimed.windows(2).all(|two| {
        (two[0].next_attempt_at, two[0].outbox_id) < (two[1].next_attempt_at, two[1].outbox_id)
    });
    assert!(sorted, "answered in claim order");
    let rails = ["shallow".to_owned()];
    let only = PaymentClaim {
        endpoints: None,
        worker_id: "w",
        batch_size: 10,
        lease_seconds: 60,
        rails: Some(&rails),
        due_from: None,
    };
    assert!(
        db.database.worker().claim_payments(&only).await.unwrap().items.is_empty(),
        "only the rails asked for"
    );
}

#[tokio::test]
async fn a_watermark_skips_what_lies_below_it_and_a_full_look_finds_it() {
    let db = TestDb::new().await;
    let ids = db.enqueue_stream("p", "ach", 1).await;
    let claimed = db.claim("w", 1).await;
    let below = PaymentClaim {
        endpoints: None,
        worker_id: "w",
        batch_size: 10,
        lease_seconds: 60,
        rails: None,
        due_from: Some(claimed[0].next_attempt_at + Duration::milliseconds(1)),
    };
    db.expire(ids[0]).await;
    assert!(db.database.worker().claim_payments(&below).await.unwrap().items.is_empty());
    assert_eq!(db.claim("w", 10).await.len(), 1);
}

#[tokio::test]
async fn a_paused_lane_rail_or_participant_is_not_claimed_and_resumes_where_it_was() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    db.enqueue_stream("p", "ach", 2).await;
    db.enqueue_stream("q", "ach", 1).await;
    for (switch, left) in [
        (Switch::Payments, 0),
        (Switch::Rail("ach".into()), 0),
        (Switch::Participant("p".into()), 1),
    ] {
        let paused = operator.pause(&switch, &act()).await.unwrap();
        assert_eq!(
            (paused.state_before.as_str(), paused.state_after.as_str()),
            ("RUNNING", "PAUSED")
        );
        let claimed = db.claim("w", 10).await;
        assert_eq!(claimed.len(), left, "{switch:?}");
        db.enqueue(&payment(&format!("while-{left}-{switch:?}"), "p", "ach")).await;
        let leases: Vec<_> = claimed.iter().map(symphony::db::ClaimedPayment::lease).collect();
        if !leases.is_empty() {
            db.database.worker().return_unsent("w", &leases).await.unwrap();
        }
        operator.resume(&switch, &act()).await.unwrap();
    }
    assert_eq!(db.claim("w", 10).await.len(), 6, "nothing was lost by pausing");
    assert_eq!(
        db.count("payment_outbox_events WHERE event_type IN ('PAUSED', 'RESUMED')").await,
        6
    );
}

#[tokio::test]
async fn workers_must_not_use_a_frozen_snapshot() {
    let db = TestDb::new().await;
    let mut executor = db.as_role("symphony_executor").await;
    for call in ["SELECT claim_outbox_batch(1, 'w', 60)", "SELECT repair_expired_leases(1, 'w')"] {
        run(&mut executor, "BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
        assert_eq!(code(run(&mut executor, call).await), "P7005");
        run(&mut executor, "ROLLBACK").await.unwrap();
    }
}

#[tokio::test]
async fn routine_events_are_recorded_when_asked_for_and_only_then() {
    let db = TestDb::new().await;
    for (asked, expected) in [(false, 0), (true, 2)] {
        db.database.operator().configure_payments(&act(), Some(asked), None).await.unwrap();
        db.enqueue(&payment(&format!("i{asked}"), "p", "ach")).await;
        let claimed = db.claim_one("w").await;
        db.complete("w", claimed.lease(), Outcome::Dispatched).await.unwrap();
        assert_eq!(
            db.count(
                "payment_outbox_events WHERE event_type IN ('LEASE_CLAIMED', 'ATTEMPT_COMPLETED')"
            )
            .await,
            expected
        );
    }
}

#[tokio::test]
async fn items_due_at_the_same_moment_are_claimed_in_the_order_they_were_asked() {
    let db = TestDb::new().await;
    let mut asked = Vec::new();
    for n in 0..40 {
        asked.push(db.enqueue(&payment(&format!("i{n}"), &format!("p{n}"), "ach")).await.outbox_id);
    }
    db.sql(
        "UPDATE payment_outbox_pending SET next_attempt_at = date_trunc('hour', clock_timestamp())",
    )
    .await;
    let claimed: Vec<_> = db.claim("w", 40).await.into_iter().map(|item| item.outbox_id).collect();
    assert_eq!(claimed, asked);
}

#[tokio::test]
async fn what_a_worker_holds_can_be_seen_at_once() {
    let db = TestDb::new().await;
    db.enqueue_stream("p", "ach", 5).await;
    db.claim("w1", 2).await;
    let second = db.claim("w2", 3).await;
    db.expire(second[0].outbox_id).await;
    assert_eq!(db.count("payment_outbox_leases WHERE worker_id = 'w1'").await, 2);
    assert_eq!(db.count("payment_outbox_leases WHERE worker_id = 'w2' AND expired").await, 1);
}
