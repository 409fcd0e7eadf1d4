//! A connection lost during COMMIT: the outcome is looked up, not guessed.

use std::sync::atomic::Ordering;

use symphony::db::{Database, DbError, PaymentClaim, PaymentOutcome, RoleSource};
use symphony::domain::Outcome;

use crate::support::proxy::{self, Cut};
use crate::support::{TestDb, payment};

async fn through_proxy(db: &TestDb, cut: Cut, cuts: usize) -> (Database, proxy::Proxy) {
    let proxy = proxy::start(&db.options, cut, cuts).await;
    let database =
        Database::connect(proxy.options.clone(), 2, RoleSource::EachTransaction).await.unwrap();
    (database, proxy)
}

#[tokio::test]
async fn a_commit_that_happened_is_reported_as_done_though_its_answer_was_lost() {
    let db = TestDb::new().await;
    let (database, proxy) = through_proxy(&db, Cut::AfterCommit, 1).await;
    let enqueued = database.producer().enqueue_payment(&payment("i", "p", "ach")).await.unwrap();
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), 0, "the connection was cut");
    assert!(!enqueued.duplicate);
    assert_eq!(db.count("payment_outbox_pending").await, 1);
}

#[tokio::test]
async fn a_commit_that_did_not_happen_is_reported_as_safe_to_repeat() {
    let db = TestDb::new().await;
    let (database, proxy) = through_proxy(&db, Cut::BeforeCommit, 1).await;
    let error = database.producer().enqueue_payment(&payment("i", "p", "ach")).await.unwrap_err();
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), 0, "the connection was cut");
    assert!(matches!(error, DbError::NotCommitted) && error.is_safe_to_repeat(), "{error:?}");
    assert_eq!(db.count("payment_outbox_pending").await, 0);
    database.producer().enqueue_payment(&payment("i", "p", "ach")).await.unwrap();
    assert_eq!(db.count("payment_outbox_pending").await, 1);
}

#[tokio::test]
async fn cut_completions_are_neither_lost_nor_doubled() {
    let db = TestDb::new().await;
    db.enqueue_stream("p", "ach", 40).await;
    for (n, cut) in [Cut::AfterCommit, Cut::BeforeCommit].into_iter().cycle().take(20).enumerate() {
        let worker = format!("w{n}");
        let (database, _proxy) = through_proxy(&db, cut, 1).await;
        let request = PaymentClaim {
            endpoints: None,
            worker_id: &worker,
            batch_size: 2,
            lease_seconds: 60,
            rails: None,
            due_from: None,
        };
        // Claimed without the proxy, so that the one cut falls on the completion.
        let items = db.database.worker().claim_payments(&request).await.unwrap().items;
        let completions: Vec<_> = items
            .iter()
            .map(|item| PaymentOutcome::new(item.lease(), Outcome::Dispatched))
            .collect();
        match database.worker().complete_payments(&worker, &completions).await {
            Ok(_) => assert_eq!(cut, Cut::AfterCommit),
            Err(DbError::NotCommitted) => {
                assert_eq!(cut, Cut::BeforeCommit);
                db.database.worker().complete_payments(&worker, &completions).await.unwrap();
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await, 40);
    assert_eq!(db.count("payment_outbox_attempts").await, 40);
    db.assert_ledger_holds().await;
}
