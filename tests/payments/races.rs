//! What can race, races.

use std::collections::HashSet;
use std::sync::Arc;

use symphony::db::{DbError, PaymentLease, PaymentOutcome, PaymentRecorded};
use symphony::domain::Outcome;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{TestDb, enqueue_at, payment, run};

/// Run `n` copies at the same moment and collect their answers.
async fn together<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    n: usize,
    make: impl Fn(usize) -> F,
) -> Vec<T> {
    let barrier = Arc::new(Barrier::new(n));
    let mut tasks = JoinSet::new();
    for k in 0..n {
        let (barrier, work) = (barrier.clone(), make(k));
        tasks.spawn(async move {
            barrier.wait().await;
            work.await
        });
    }
    tasks.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_claimers_never_share_a_row() {
    let db = Arc::new(TestDb::new().await);
    db.enqueue_stream("p", "ach", 400).await;
    let claimed = together(8, |k| {
        let db = db.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                let items = db.claim(&format!("w{k}"), 7).await;
                if items.is_empty() {
                    return mine;
                }
                mine.extend(items.into_iter().map(|item| item.outbox_id));
            }
        }
    })
    .await;
    let all: Vec<_> = claimed.into_iter().flatten().collect();
    assert_eq!(all.len(), 400);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_m_racing_completions_exactly_one_succeeds() {
    let db = Arc::new(TestDb::new().await);
    for round in 0..20 {
        db.enqueue(&payment(&format!("i{round}"), "p", "ach")).await;
        let item = db.claim_one("w").await;
        let results = together(10, |k| {
            let (db, lease) = (db.clone(), item.lease());
            async move {
                if k % 2 == 0 {
                    match db.complete("w", lease, Outcome::Dispatched).await {
                        Ok(_) => "OK".to_owned(),
                        Err(error) => error.code().to_owned(),
                    }
                } else {
                    let answers = db
                        .database
                        .worker()
                        .complete_payments("w", &[PaymentOutcome::new(lease, Outcome::Failed)])
                        .await
                        .unwrap();
                    match answers[0].result {
                        PaymentRecorded::Recorded(_) => "OK".to_owned(),
                        PaymentRecorded::TerminalExists => "P7001".to_owned(),
                        other => format!("{other:?}"),
                    }
                }
            }
        })
        .await;
        let mut results = results;
        results.sort();
        // The losers hear that it has ended: neither a lost lease nor an integrity alarm.
        let expected: Vec<_> = ["OK"].into_iter().chain(["P7001"; 9]).collect();
        assert_eq!(results, expected, "round {round}");
    }
    db.assert_ledger_holds().await;
}

/// Clients that retry the same keys while workers complete them: each key becomes one item and one payment.
async fn racing_duplicates(clients: usize, calls_each: usize, keys: usize) {
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let db = Arc::new(TestDb::new().await);
        let clients = together(clients, |k| {
            let db = db.clone();
            async move {
                let mut connection = db.admin().await;
                let mut seen = HashSet::new();
                for n in 0..calls_each {
                    // Neighbours ask for the same key at about the same time, with lag.
                    let key = (n + k % 3) % keys;
                    let request = payment(&format!("key-{key}"), &format!("p{}", key % 5), "ach");
                    loop {
                        match enqueue_at(&mut connection, isolation, &request).await {
                            Ok(enqueued) => {
                                seen.insert((key, enqueued.outbox_id));
                                break;
                            }
                            Err(DbError::Retry { .. }) => {}
                            Err(other) => panic!("{isolation}: {other}"),
                        }
                    }
                    if n % 10 == 0 && k < 2 {
                        let name = format!("w{k}");
                        for item in db.claim(&name, 20).await {
                            db.complete(&name, item.lease(), Outcome::Dispatched).await.unwrap();
                        }
                    }
                }
                seen
            }
        })
        .await;
        let seen: HashSet<_> = clients.into_iter().flatten().collect();
        assert_eq!(seen.len(), keys, "{isolation}: one outbox_id per key");
        assert_eq!(
            db.count("payment_outbox_instructions").await,
            i64::try_from(keys).unwrap(),
            "{isolation}"
        );
        db.assert_ledger_holds().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn n_racing_enqueues_make_one_outbox_id_at_every_isolation_level() {
    racing_duplicates(12, 100, 50).await;
}

/// The long form: one million calls over 10,000 keys, a third at each isolation level.
/// `cargo test --release -- --ignored one_million`
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "minutes long: scripts/test --long"]
async fn one_million_racing_enqueues_of_ten_thousand_keys_leave_ten_thousand_items() {
    racing_duplicates(12, 1_000_000 / 3 / 12 + 1, 10_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_duplicate_batches_make_each_item_once() {
    let db = Arc::new(TestDb::new().await);
    let answers = together(8, |k| {
        let db = db.clone();
        async move {
            let mut ids = HashSet::new();
            for round in 0..10 {
                // The same keys in another order each time.
                let batch: Vec<_> = (0..50)
                    .map(|n| (n * 7 + k * 11) % 50)
                    .map(|n| payment(&format!("r{round}-{n}"), &format!("p{}", n % 6), "ach"))
                    .collect();
                for answer in db.database.producer().enqueue_payments(&batch).await.unwrap() {
                    ids.insert(answer.unwrap().outbox_id);
                }
            }
            ids
        }
    })
    .await;
    let all: HashSet<_> = answers.into_iter().flatten().collect();
    assert_eq!(all.len(), 500);
    assert_eq!(db.count("payment_outbox_instructions").await, 500);
    db.assert_ledger_holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_over_the_same_participants_in_any_order_never_deadlock() {
    let db = Arc::new(TestDb::new().await);
    together(8, |k| {
        let db = db.clone();
        async move {
            for round in 0..25 {
                let batch: Vec<_> = (0..40)
                    .map(|n| if k % 2 == 0 { n } else { 39 - n })
                    .map(|n| {
                        payment(
                            &format!("{k}-{round}-{n}"),
                            &format!("p{}", (n * (k + 1)) % 20),
                            "ach",
                        )
                    })
                    .collect();
                // Any error, a deadlock above all, fails the test.
                db.database.producer().enqueue_payments(&batch).await.unwrap();
            }
        }
    })
    .await;
    assert_eq!(db.count("payment_outbox_instructions").await, 8 * 25 * 40);
    db.assert_ledger_holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sequences_have_no_gap_under_rollbacks_and_concurrency() {
    let db = Arc::new(TestDb::new().await);
    together(8, |k| {
        let db = db.clone();
        async move {
            let mut connection = db.admin().await;
            for n in 0..60 {
                run(&mut connection, "BEGIN").await.unwrap();
                symphony::payments::enqueue(
                    &mut connection,
                    &payment(&format!("{k}-{n}"), &format!("p{}", n % 3), "ach"),
                )
                .await
                .unwrap();
                run(&mut connection, if (n + k) % 3 == 0 { "ROLLBACK" } else { "COMMIT" })
                    .await
                    .unwrap();
            }
        }
    })
    .await;
    assert_eq!(db.count("payment_outbox_instructions").await, 320);
    assert_eq!(db.count("participant_sequence_gaps").await, 0);
    db.assert_ledger_holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn repair_takeover_and_completion_of_one_item_leave_one_trace_each() {
    let db = Arc::new(TestDb::new().await);
    for round in 0..15 {
        let id = db.enqueue(&payment(&format!("i{round}"), "p", "ach")).await.outbox_id;
        let item = db.claim_one("lost").await;
        db.expire(id).await;
        together(9, |k| {
            let (db, lease) = (db.clone(), item.lease());
            async move {
                match k % 3 {
                    0 => drop(
                        db.database
                            .worker()
                            .repair::<PaymentLease>(&format!("r{k}"), 10)
                            .await
                            .unwrap(),
                    ),
                    1 => drop(db.claim(&format!("w{k}"), 10).await),
                    _ => assert_eq!(
                        crate::support::code(db.complete("lost", lease, Outcome::Dispatched).await),
                        "P7002"
                    ),
                }
            }
        })
        .await;
        assert_eq!(db.ledger(id).await, ["1 ZOMBIE_REQUEUE"], "round {round}");
        db.sql(&format!("UPDATE payment_outbox_pending SET hold = 'PARKED', lease_token = NULL, claimed_by = NULL, lease_expires_at = NULL WHERE outbox_id = '{id}'")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pausing_and_resuming_a_participant_under_load_loses_nothing() {
    let db = Arc::new(TestDb::new().await);
    db.enqueue_stream("p", "ach", 300).await;
    db.enqueue_stream("q", "ach", 100).await;
    together(5, |k| {
        let db = db.clone();
        async move {
            let switch = symphony::domain::Switch::Participant("p".to_owned());
            if k == 0 {
                for _ in 0..20 {
                    db.database.operator().pause(&switch, &crate::support::act()).await.unwrap();
                    db.database.operator().resume(&switch, &crate::support::act()).await.unwrap();
                }
                return;
            }
            let name = format!("w{k}");
            while db.count("payment_outbox_attempts").await < 400 {
                for item in db.claim(&name, 9).await {
                    db.complete(&name, item.lease(), Outcome::Dispatched).await.unwrap();
                }
            }
        }
    })
    .await;
    assert_eq!(db.count("payment_outbox_pending").await, 0);
    db.assert_ledger_holds().await;
}
