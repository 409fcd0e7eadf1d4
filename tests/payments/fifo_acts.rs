//! Strict order while people act: what a lane does under redrive, skip, park, resolve and pause.
//! Most of these were bugs once, found by review before anybody was hurt.

use std::sync::Arc;

use symphony::db::{ClaimedPayment, PaymentOutcome};
use symphony::domain::{Act, OutboxId, Outcome, Resolution, Switch};
use tokio::task::JoinSet;

use crate::support::{TestDb, act, code, payment, run};

async fn fifo(on_failed: &str) -> TestDb {
    let db = TestDb::new().await;
    db.make_fifo("fifo", on_failed).await;
    db
}

async fn end_head(db: &TestDb, outcome: Outcome) -> OutboxId {
    let heads = db.claim("w", 100).await;
    assert_eq!(heads.len(), 1, "one head");
    db.complete("w", heads[0].lease(), outcome).await.unwrap();
    heads[0].outbox_id
}

async fn assert_order(db: &TestDb, expected: &[OutboxId]) {
    for item in expected {
        assert_eq!(end_head(db, Outcome::Dispatched).await, *item);
    }
    assert!(db.claim("w", 100).await.is_empty());
    db.assert_ledger_holds().await;
}

/// Whoever acts here has asked the rail.
fn despite() -> Act {
    Act { despite_unknown: true, ..act() }
}

async fn redrive(db: &TestDb, item: OutboxId) -> OutboxId {
    db.database.operator().redrive_payment(item, &act()).await.unwrap().redriven_as.unwrap()
}

/// An item failed by a person while it waits behind its head holds back those after it, and nobody before it.
#[tokio::test]
async fn a_waiting_item_that_a_person_fails_blocks_only_what_stands_behind_it() {
    let db = fifo("block").await;
    let operator = db.database.operator();
    let p = db.enqueue_stream("p", "fifo", 4).await;
    let head = db.claim_one("w").await;
    operator.park_payment(p[2], &act()).await.unwrap();
    operator.resolve_payment(p[2], &Resolution::Failed, &act()).await.unwrap();
    db.complete("w", head.lease(), Outcome::Failed).await.unwrap();
    let first = redrive(&db, p[0]).await;
    assert_eq!(end_head(&db, Outcome::Dispatched).await, first);
    assert_eq!(end_head(&db, Outcome::Dispatched).await, p[1]);
    assert!(db.claim("w", 10).await.is_empty(), "the third has failed");
    let third = redrive(&db, p[2]).await;
    assert_order(&db, &[third, p[3]]).await;
}

#[tokio::test]
async fn two_failed_items_of_one_lane_are_redriven_in_any_order_and_run_in_theirs() {
    let db = fifo("continue").await;
    let p = db.enqueue_stream("p", "fifo", 3).await;
    end_head(&db, Outcome::Failed).await;
    db.database
        .operator()
        .configure_rail("fifo", &act(), None, Some("block"), None, None)
        .await
        .unwrap();
    end_head(&db, Outcome::Failed).await;
    let first = redrive(&db, p[0]).await;
    let claimed = db.claim_one("w").await;
    assert_eq!(claimed.outbox_id, first, "a block holds back only what stands behind it");
    let second = redrive(&db, p[1]).await;
    assert!(db.claim("w", 10).await.is_empty(), "never two of a lane in flight");
    db.complete("w", claimed.lease(), Outcome::Dispatched).await.unwrap();
    assert_order(&db, &[second, p[2]]).await;
}

#[tokio::test]
async fn a_redrive_of_a_redrive_still_has_the_first_ones_place() {
    let db = fifo("continue").await;
    let p = db.enqueue_stream("p", "fifo", 3).await;
    assert_eq!(end_head(&db, Outcome::Failed).await, p[0]);
    let again = redrive(&db, p[0]).await;
    assert_eq!(end_head(&db, Outcome::Failed).await, again);
    let once_more = redrive(&db, again).await;
    assert_order(&db, &[once_more, p[1], p[2]]).await;
}

#[tokio::test]
async fn parking_and_releasing_a_waiting_redrive_does_not_put_two_of_a_lane_in_flight() {
    for resolved in [false, true] {
        let db = fifo("continue").await;
        let p = db.enqueue_stream("p", "fifo", 3).await;
        end_head(&db, Outcome::Failed).await;
        let in_flight = db.claim_one("w").await;
        let again = redrive(&db, p[0]).await;
        assert!(db.claim("w", 10).await.is_empty());
        let operator = db.database.operator();
        operator.park_payment(again, &act()).await.unwrap();
        if resolved {
            operator.resolve_payment(again, &Resolution::Retry, &act()).await.unwrap();
        } else {
            operator.release_payment(again, &act()).await.unwrap();
        }
        assert!(db.claim("w", 10).await.is_empty(), "one is in flight");
        db.complete("w", in_flight.lease(), Outcome::Retryable).await.unwrap();
        assert_order(&db, &[again, p[1], p[2]]).await;
    }
}

/// Takeover parks a possibly sent item; a paused participant or a head before it must not undo that.
#[tokio::test]
async fn an_item_parked_by_a_takeover_stays_parked_though_its_participant_is_paused() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    operator.configure_rail("wire", &act(), None, None, Some(true), None).await.unwrap();
    let item = db.enqueue(&payment("i", "p", "wire")).await.outbox_id;
    let lost = db.claim_one("w").await;
    db.database.worker().mark_payments_sending("w", &[lost.lease()]).await.unwrap();
    db.expire(item).await;
    let switch = Switch::Participant("p".into());
    operator.pause(&switch, &act()).await.unwrap();
    assert!(db.claim("w2", 10).await.is_empty());
    operator.resume(&switch, &act()).await.unwrap();
    assert_eq!(db.state(item).await, "PARKED");
    assert!(db.claim("w2", 10).await.is_empty(), "it may have been sent");
}

#[tokio::test]
async fn whether_a_rail_marks_cannot_change_under_items_in_flight() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    db.enqueue(&payment("i", "p", "wire")).await;
    let item = db.claim_one("w").await;
    let refused = operator.configure_rail("wire", &act(), None, None, Some(true), None).await;
    assert_eq!(code(refused), "P7006", "sent without a mark, it would count as provably unsent");
    db.complete("w", item.lease(), Outcome::Retryable).await.unwrap();
    operator.configure_rail("wire", &act(), None, None, Some(true), None).await.unwrap();
}

#[tokio::test]
async fn a_pause_that_meets_an_uncommitted_resume_holds() {
    let db = Arc::new(TestDb::new().await);
    db.sql("INSERT INTO participant_outbox_sequences VALUES ('p', 1)").await;
    let switch = Switch::Participant("p".into());
    db.database.operator().pause(&switch, &act()).await.unwrap();
    let mut resuming = db.as_role("symphony_operator").await;
    run(&mut resuming, "BEGIN; SELECT resume_payment_participant('p', 'eve', 'done')")
        .await
        .unwrap();
    let pausing = tokio::spawn({
        let (db, switch) = (db.clone(), switch.clone());
        async move { db.database.operator().pause(&switch, &act()).await.unwrap() }
    });
    while db.count("pg_locks WHERE NOT granted").await == 0 && !pausing.is_finished() {}
    run(&mut resuming, "COMMIT").await.unwrap();
    assert_eq!(pausing.await.unwrap().state_after, "PAUSED");
    db.enqueue(&payment("i", "p", "ach")).await;
    assert!(db.claim("w", 10).await.is_empty(), "what was answered is true");
}

#[tokio::test]
async fn a_small_claim_reaches_past_a_deep_lane_at_once() {
    let db = fifo("block").await;
    db.enqueue_stream("deep", "fifo", 3_000).await;
    db.enqueue_stream("other", "fifo", 1).await;
    let claimed: Vec<String> =
        db.claim("w", 4).await.into_iter().map(|item| item.participant_id).collect();
    assert_eq!(
        claimed,
        ["deep", "other"],
        "an empty or short answer would cost a poll interval each"
    );
}

#[tokio::test]
async fn a_full_look_does_not_wait_for_an_open_producer_of_a_new_rail() {
    let db = TestDb::new().await;
    db.enqueue(&payment("i", "p", "known")).await;
    db.claim_one("w").await;
    let mut open = db.admin().await;
    run(&mut open, "BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    symphony::payments::enqueue(&mut open, &payment("i2", "q", "new")).await.unwrap();
    db.enqueue(&payment("i3", "p", "known")).await;
    db.enqueue(&payment("i4", "r", "new")).await;
    let limit = std::time::Duration::from_secs(10);
    let claimed = tokio::time::timeout(limit, db.claim("w", 10)).await.expect("no waiting");
    assert_eq!(claimed.len(), 2, "a rail without a row is unordered and running");
    run(&mut open, "COMMIT").await.unwrap();
    assert_eq!(db.claim("w", 10).await.len(), 1);
}

/// Operators act on lanes at random while workers work: no lane has two in flight, none stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_racing_acts_no_lane_has_two_in_flight_and_none_stands_still() {
    let db = Arc::new(fifo("block").await);
    for lane in 0..3 {
        db.enqueue_stream(&format!("lane{lane}"), "fifo", 40).await;
    }
    let mut tasks = JoinSet::new();
    for worker in 0..4_usize {
        let db = db.clone();
        tasks.spawn(async move {
            let name = format!("w{worker}");
            let mut turn = worker;
            while db.count("payment_outbox_pending WHERE hold IS DISTINCT FROM 'PARKED'").await > 0 {
                for item in db.claim(&name, 2).await {
                    let ClaimedPayment { participant_id, outbox_id, .. } = &item;
                    // A skipped item that was released runs outside its lane, and may.
                    let others = db
                        .count(&format!(
                            "payment_outbox_pending o JOIN payment_outbox_pending mine USING (participant_id) \
                              WHERE mine.outbox_id = '{outbox_id}' AND mine.lane_position > 0 \
                                AND o.lane_position > 0 AND o.lease_token IS NOT NULL AND o.outbox_id <> mine.outbox_id"
                        ))
                        .await;
                    assert_eq!(others, 0, "two of {participant_id} in flight");
                    turn += 1;
                    let outcome = match turn % 6 {
                        0 => Outcome::Failed,
                        1 => Outcome::Retryable,
                        2 => Outcome::Unknown,
                        _ => Outcome::Dispatched,
                    };
                    if outcome == Outcome::Unknown {
                        let evidence = PaymentOutcome::new(item.lease(), outcome);
                        db.database.worker().park_unknown_payment(&name, &evidence).await.unwrap();
                    } else {
                        db.complete(&name, item.lease(), outcome).await.unwrap();
                    }
                }
            }
        });
    }
    for operator in 0..2_usize {
        let db = db.clone();
        tasks.spawn(async move {
            let mut turn = operator;
            while db.count("payment_outbox_pending WHERE hold IS DISTINCT FROM 'PARKED'").await > 0 {
                turn += 1;
                let acts = db.database.operator();
                let lane = format!("lane{}", turn % 3);
                let blocked: Option<uuid::Uuid> = db
                    .one(&format!("SELECT (SELECT outbox_id FROM payment_outbox_blocked_lanes WHERE participant_id = '{lane}' LIMIT 1)"))
                    .await;
                let parked: Option<uuid::Uuid> = db
                    .one(&format!("SELECT (SELECT outbox_id FROM payment_outbox_pending WHERE participant_id = '{lane}' AND hold = 'PARKED' LIMIT 1)"))
                    .await;
                // Refusals are part of it: others act too. Anything but a refusal is a bug.
                let result = match (turn % 4, blocked, parked) {
                    (0 | 1, Some(item), _) => acts.redrive_payment(OutboxId(item), &despite()).await.map(drop),
                    (2, _, Some(item)) => acts.release_payment(OutboxId(item), &despite()).await.map(drop),
                    (3, _, Some(item)) => acts.resolve_payment(OutboxId(item), &Resolution::Failed, &despite()).await.map(drop),
                    _ => acts.skip_payment_head(&lane, "fifo", &despite()).await.map(drop),
                };
                if let Err(error) = result {
                    assert_eq!(error.code(), "P7006", "{error}");
                }
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    db.assert_ledger_holds().await;
}
