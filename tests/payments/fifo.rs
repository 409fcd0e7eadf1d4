//! Strict order per participant, on rails that ask for it.

use std::collections::HashMap;

use symphony::db::PaymentLease;
use symphony::domain::{OutboxId, Outcome};
use tokio::task::JoinSet;

use crate::support::{TestDb, act, code, payment, run};

async fn claim_all(db: &TestDb) -> Vec<OutboxId> {
    db.claim("w", 100).await.into_iter().map(|item| item.outbox_id).collect()
}

/// Claim the one head there is and end it.
async fn end_head(db: &TestDb, outcome: Outcome) -> OutboxId {
    let heads = db.claim("w", 100).await;
    assert_eq!(heads.len(), 1, "one head");
    db.complete("w", heads[0].lease(), outcome).await.unwrap();
    heads[0].outbox_id
}

#[tokio::test]
async fn only_the_head_of_a_lane_can_be_leased_and_lanes_do_not_wait_for_each_other() {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "block").await;
    let p = db.enqueue_stream("p", "fifo", 3).await;
    let q = db.enqueue_stream("q", "fifo", 2).await;
    let unordered = db.enqueue_stream("p", "ach", 2).await;
    let mut expected = vec![p[0], q[0], unordered[0], unordered[1]];
    expected.sort();
    let mut claimed = db.claim("w", 100).await;
    claimed.sort_by_key(|item| item.outbox_id);
    assert_eq!(claimed.iter().map(|item| item.outbox_id).collect::<Vec<_>>(), expected);
    assert!(
        claim_all(&db).await.is_empty(),
        "while heads are in flight nobody else of their lane is"
    );
    for item in &claimed {
        db.complete("w", item.lease(), Outcome::Dispatched).await.unwrap();
    }
    let mut next = claim_all(&db).await;
    next.sort();
    let mut expected = vec![p[1], q[1]];
    expected.sort();
    assert_eq!(next, expected);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_retried_head_is_not_overtaken() {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "block").await;
    let p = db.enqueue_stream("p", "fifo", 3).await;
    assert_eq!(end_head(&db, Outcome::Retryable).await, p[0]);
    db.sql(&format!("UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + INTERVAL '1 hour' WHERE outbox_id = '{}'", p[0])).await;
    assert!(claim_all(&db).await.is_empty(), "a head that waits for its retry holds its lane");
    db.make_due(p[0]).await;
    for expected in p {
        assert_eq!(end_head(&db, Outcome::Dispatched).await, expected);
    }
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_failed_head_blocks_its_lane_until_it_is_redriven_in_its_place() {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "block").await;
    let p = db.enqueue_stream("p", "fifo", 3).await;
    let q = db.enqueue_stream("q", "fifo", 1).await;
    let heads = db.claim("w", 100).await;
    for head in &heads {
        let outcome =
            if head.participant_id == "p" { Outcome::Failed } else { Outcome::Dispatched };
        db.complete("w", head.lease(), outcome).await.unwrap();
    }
    assert!(claim_all(&db).await.is_empty());
    let more = db.enqueue_stream("q2", "fifo", 1).await;
    assert_eq!(claim_all(&db).await, more, "only its own participant is blocked");
    let redriven = db.database.operator().redrive_payment(p[0], &act()).await.unwrap();
    let new = redriven.redriven_as.unwrap();
    assert_eq!(redriven.sequence_id, Some(4), "a new number");
    for expected in [new, p[1], p[2]] {
        assert_eq!(end_head(&db, Outcome::Dispatched).await, expected);
    }
    assert_eq!(db.state(q[0]).await, "DISPATCHED");
    assert_eq!(code(db.database.operator().redrive_payment(p[0], &act()).await), "P7006", "once");
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_failed_redrive_blocks_the_same_place_again() {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "block").await;
    let p = db.enqueue_stream("p", "fifo", 2).await;
    end_head(&db, Outcome::Failed).await;
    let first =
        db.database.operator().redrive_payment(p[0], &act()).await.unwrap().redriven_as.unwrap();
    assert_eq!(end_head(&db, Outcome::Failed).await, first);
    assert!(claim_all(&db).await.is_empty());
    let second =
        db.database.operator().redrive_payment(first, &act()).await.unwrap().redriven_as.unwrap();
    for expected in [second, p[1]] {
        assert_eq!(end_head(&db, Outcome::Dispatched).await, expected);
    }
}

#[tokio::test]
async fn skipping_a_failed_head_lets_the_lane_go_on_and_is_recorded() {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "block").await;
    let p = db.enqueue_stream("p", "fifo", 2).await;
    end_head(&db, Outcome::Failed).await;
    assert!(claim_all(&db).await.is_empty());
    let mut dry = act();
    dry.dry_run = true;
    assert_eq!(
        db.database.operator().skip_payment_head("p", "fifo", &dry).await.unwrap().outbox_id,
        p[0]
    );
    assert!(claim_all(&db).await.is_empty(), "a dry run changes nothing");
    assert_eq!(
        db.database.operator().skip_payment_head("p", "fifo", &act()).await.unwrap().outbox_id,
        p[0]
    );
    assert_eq!(end_head(&db, Outcome::Dispatched).await, p[1]);
    assert_eq!(db.count(&format!("payment_outbox_events WHERE event_type = 'SKIPPED' AND outbox_id = '{}' AND actor = 'dana'", p[0])).await, 1);
    assert_eq!(
        code(db.database.operator().skip_payment_head("p", "fifo", &act()).await),
        "P7006",
        "nothing left to skip"
    );
}

#[tokio::test]
async fn a_skipped_parked_head_is_not_failed_and_leaves_the_lane_for_good() {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "block").await;
    let p = db.enqueue_stream("p", "fifo", 3).await;
    let head = db.claim_one("w").await;
    assert_eq!(
        code(db.database.operator().skip_payment_head("p", "fifo", &act()).await),
        "P7006",
        "in flight"
    );
    db.database
        .worker()
        .park_unknown_payment(
            "w",
            &symphony::db::PaymentOutcome::new(head.lease(), Outcome::Unknown),
        )
        .await
        .unwrap();
    assert!(claim_all(&db).await.is_empty(), "a parked head holds its lane");
    db.database.operator().skip_payment_head("p", "fifo", &act()).await.unwrap();
    assert_eq!(db.state(p[0]).await, "PARKED", "nobody has said that its money did not move");
    let second = db.claim_one("w").await;
    assert_eq!(second.outbox_id, p[1]);
    let despite = symphony::domain::Act { despite_unknown: true, ..act() };
    db.database.operator().release_payment(p[0], &despite).await.unwrap();
    let released = db.claim_one("w").await;
    assert_eq!(released.outbox_id, p[0], "it runs outside the order now");
    assert!(released.must_inquire);
    db.complete("w", released.lease(), Outcome::Failed).await.unwrap();
    db.complete("w", second.lease(), Outcome::Dispatched).await.unwrap();
    assert_eq!(
        end_head(&db, Outcome::Dispatched).await,
        p[2],
        "its failure no longer blocks the lane"
    );
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn on_a_rail_that_continues_a_failed_head_is_passed_and_its_redrive_waits_for_the_one_in_flight()
 {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "continue").await;
    let p = db.enqueue_stream("p", "fifo", 4).await;
    assert_eq!(end_head(&db, Outcome::Failed).await, p[0]);
    let second = db.claim_one("w").await;
    assert_eq!(second.outbox_id, p[1], "the lane goes on");
    let first_again =
        db.database.operator().redrive_payment(p[0], &act()).await.unwrap().redriven_as.unwrap();
    assert!(claim_all(&db).await.is_empty(), "never two of a lane in flight");
    db.complete("w", second.lease(), Outcome::Retryable).await.unwrap();
    for expected in [first_again, p[1], p[2], p[3]] {
        assert_eq!(end_head(&db, Outcome::Dispatched).await, expected);
    }
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn two_redrives_while_one_is_in_flight_run_one_after_another() {
    let db = TestDb::new().await;
    db.make_fifo("fifo", "continue").await;
    let p = db.enqueue_stream("p", "fifo", 4).await;
    assert_eq!(end_head(&db, Outcome::Failed).await, p[0]);
    assert_eq!(end_head(&db, Outcome::Failed).await, p[1]);
    let third = db.claim_one("w").await;
    let second_again =
        db.database.operator().redrive_payment(p[1], &act()).await.unwrap().redriven_as.unwrap();
    let first_again =
        db.database.operator().redrive_payment(p[0], &act()).await.unwrap().redriven_as.unwrap();
    assert!(claim_all(&db).await.is_empty());
    // The worker is lost: the lane must go on all the same.
    db.expire(third.outbox_id).await;
    db.database.worker().repair::<PaymentLease>("r", 10).await.unwrap();
    db.make_due(p[2]).await;
    for expected in [first_again, second_again, p[2], p[3]] {
        assert_eq!(end_head(&db, Outcome::Dispatched).await, expected);
    }
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn the_order_of_a_rail_with_pending_items_cannot_change() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    db.enqueue_stream("p", "ach", 1).await;
    assert_eq!(
        code(operator.configure_rail("ach", &act(), Some(true), None, None, None).await),
        "P7006"
    );
    let head = db.claim_one("w").await;
    db.complete("w", head.lease(), Outcome::Dispatched).await.unwrap();
    assert!(
        operator.configure_rail("ach", &act(), Some(true), None, None, None).await.unwrap().fifo
    );
}

#[tokio::test]
async fn a_producer_with_a_frozen_snapshot_cannot_slip_an_unordered_item_into_a_fifo_lane() {
    let db = TestDb::new().await;
    db.sql("INSERT INTO payment_outbox_rails (rail_type) VALUES ('known')").await;
    for rail in ["known", "unknown"] {
        let mut frozen = db.admin().await;
        run(
            &mut frozen,
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM payment_outbox_rails",
        )
        .await
        .unwrap();
        db.make_fifo(rail, "block").await;
        let request = payment(&format!("i-{rail}"), "p", rail);
        assert_eq!(
            code(symphony::payments::enqueue(&mut frozen, &request).await),
            "40001",
            "{rail}"
        );
        run(&mut frozen, "ROLLBACK").await.unwrap();
        db.enqueue(&request).await;
    }
    assert_eq!(db.count("payment_outbox_pending WHERE lane_position IS NULL").await, 0);
}

/// Many workers, many producers, outcomes of every kind: in each lane the terminal outcomes are in order of
/// their places, and every lane comes to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_races_no_lane_is_out_of_order_and_none_stands_still() {
    const PRODUCERS: usize = 4;
    const WORKERS: usize = 6;
    const EACH: usize = 30;
    let db = std::sync::Arc::new(TestDb::new().await);
    db.make_fifo("fifo", "continue").await;
    let mut tasks = JoinSet::new();
    for producer in 0..PRODUCERS {
        let db = db.clone();
        tasks.spawn(async move {
            for n in 0..EACH {
                let batch: Vec<_> = (0..5)
                    .map(|lane| {
                        payment(&format!("{producer}-{n}-{lane}"), &format!("lane{lane}"), "fifo")
                    })
                    .collect();
                db.database.producer().enqueue_payments(&batch).await.unwrap();
            }
        });
    }
    let total = i64::try_from(PRODUCERS * EACH * 5).unwrap();
    for worker in 0..WORKERS {
        let db = db.clone();
        tasks.spawn(async move {
            let name = format!("w{worker}");
            let mut turn = worker;
            loop {
                let items = db.claim(&name, 3).await;
                for item in &items {
                    turn += 1;
                    let outcome = match turn % 7 {
                        0 => Outcome::Failed,
                        1 | 2 => Outcome::Retryable,
                        _ => Outcome::Dispatched,
                    };
                    db.complete(&name, item.lease(), outcome).await.unwrap();
                }
                let ended: i64 = db
                    .count("payment_outbox_attempts WHERE state IN ('DISPATCHED', 'FAILED')")
                    .await;
                if ended == total {
                    return;
                }
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    let ends: Vec<(String, i64)> = sqlx::query_as(
        "SELECT participant_id, sequence_id FROM payment_outbox_attempts WHERE state IN ('DISPATCHED', 'FAILED') ORDER BY completed_at, created_at",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    let mut last: HashMap<String, i64> = HashMap::new();
    for (lane, number) in ends {
        let before = last.insert(lane.clone(), number).unwrap_or(0);
        assert_eq!(number, before + 1, "{lane}");
    }
    db.assert_ledger_holds().await;
}
