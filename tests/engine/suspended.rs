//! A host that was suspended: its clock shows it, and where nothing but the lease protects, the database is asked.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use symphony::db::PaymentLease;
use symphony::domain::{LeaseToken, OutboxId, Outcome};
use symphony::engine::{self, Clock, Engine, LaneMetrics, Points, Start};
use symphony::lanes::payments::rail::{
    Answer, Inquiry, InquiryTerms, Payment, Rail, SendCheck, Terms,
};
use symphony::lanes::payments::{PaymentLane, RailSetup};
use symphony::money::Defect;
use tokio::sync::Notify;

use super::bank::{Bank, Reply, accepted, rail, settings, setup, terms, until_empty};
use crate::support::{TestDb, payment, until};

fn start_on(db: &TestDb, clock: &Clock, rails: Vec<RailSetup>) -> Engine {
    let lane = PaymentLane::new(db.database.worker(), engine::new_worker_id("test"), rails);
    let start = Start {
        lane,
        database: db.database.clone(),
        listen: db.options.clone(),
        settings: settings(),
        metrics: Arc::new(LaneMetrics::default()),
        points: Points::default(),
    };
    Engine::start_with_clock(start, clock.clone()).unwrap()
}

/// The lease has passed on, as after its end; at once, so that this worker cannot take it over itself.
async fn pass_to_another(db: &TestDb, item: OutboxId) -> PaymentLease {
    db.sql(&format!(
        "UPDATE payment_outbox_pending SET claimed_by = 'other', lease_token = gen_random_uuid(),
                lease_expires_at = clock_timestamp() + INTERVAL '1 minute' WHERE outbox_id = '{item}'"
    ))
    .await;
    let token = db.one("SELECT lease_token FROM payment_outbox_pending").await;
    PaymentLease { outbox_id: item, lease_token: LeaseToken(token) }
}

/// A rail whose connection takes as long as the test says; then it asks whether it may send.
struct SlowToConnect {
    bank: Arc<Bank>,
    terms: Terms,
    connecting: Arc<Notify>,
    connected: Arc<Notify>,
}

#[async_trait::async_trait]
impl Rail for SlowToConnect {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn validate(&self, _: &Payment) -> Result<(), Defect> {
        Ok(())
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        self.bank.sends.fetch_add(1, Ordering::SeqCst);
        self.bank.execute(payment);
        accepted()
    }

    async fn dispatch_when(&self, payment: &Payment, check: &dyn SendCheck) -> Answer {
        self.connecting.notify_one();
        self.connected.notified().await;
        if check.may_send().await {
            self.dispatch(payment).await
        } else {
            Answer::accepted("must not be read")
        }
    }

    async fn inquire(&self, payment: &Payment) -> Inquiry {
        self.bank.inquiries.fetch_add(1, Ordering::SeqCst);
        self.bank.knows(payment)
    }
}

#[tokio::test]
async fn a_worker_that_was_suspended_past_its_lease_while_it_connected_does_not_send() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let (connecting, connected) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let slow = SlowToConnect {
        bank: bank.clone(),
        terms: Terms { timeout: Duration::from_secs(4), ..terms() },
        connecting: connecting.clone(),
        connected: connected.clone(),
    };
    let clock = Clock::default();
    let none = rail(&bank, terms(), |_, _, _| Reply::Executed(accepted()));
    let slow = RailSetup { rail: Arc::new(slow), ..setup("sepa", none) };
    let engine = start_on(&db, &clock, vec![slow]);
    connecting.notified().await;
    // The host sleeps; meanwhile another worker takes the payment over, asks, and ends it.
    let other = pass_to_another(&db, item).await;
    db.complete("other", other, Outcome::Dispatched).await.unwrap();
    clock.suspend(Duration::from_mins(2));
    connected.notify_one();
    until("it lets go", async || engine.metrics().held_items.get() == 0).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 0, "the money would have moved twice");
    assert_eq!(db.ledger(item).await, ["1 DISPATCHED"]);
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'LATE_OUTCOME'").await, 0);
}

#[tokio::test]
async fn without_a_key_the_database_is_asked_once_more_right_before_the_first_byte() {
    // By its own clock the lease is good for a while yet; the database knows better.
    for (key_lifetime, inquiry, sent) in [
        (None, InquiryTerms::NotFoundIsFinalAfter(Duration::from_mins(10)), 0),
        (None, InquiryTerms::NotFoundProvesNothing, 0),
        (None, InquiryTerms::Impossible, 0),
        // With a key the rail itself pays once.
        (Some(Duration::from_hours(24)), InquiryTerms::NotFoundProvesNothing, 1),
    ] {
        let db = TestDb::new().await;
        let bank = Arc::new(Bank::default());
        let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
        let (connecting, connected) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = SlowToConnect {
            bank: bank.clone(),
            terms: Terms { key_lifetime, inquiry, timeout: Duration::from_secs(4), ..terms() },
            connecting: connecting.clone(),
            connected: connected.clone(),
        };
        let none = rail(&bank, terms(), |_, _, _| Reply::Executed(accepted()));
        let slow = RailSetup { rail: Arc::new(slow), ..setup("sepa", none) };
        let engine = start_on(&db, &Clock::default(), vec![slow]);
        connecting.notified().await;
        let other = pass_to_another(&db, item).await;
        connected.notify_one();
        until("it lets go", async || engine.metrics().held_items.get() == 0).await;
        assert_eq!(bank.sends.load(Ordering::SeqCst), sent, "{key_lifetime:?} {inquiry:?}");
        db.complete("other", other, Outcome::Dispatched).await.unwrap();
        assert_eq!(engine.stop().await, 0);
    }
}

#[tokio::test]
async fn after_a_suspension_the_work_goes_on() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let clock = Clock::default();
    let script = |_: &Bank, _: &Payment, _: usize| Reply::Executed(accepted());
    let engine = start_on(&db, &clock, vec![setup("sepa", rail(&bank, terms(), script))]);
    for n in 0..5 {
        db.enqueue_stream(&format!("acme-{n}"), "sepa", 20).await;
        clock.suspend(Duration::from_mins(5));
    }
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert!(bank.executed.lock().unwrap().values().all(|times| *times == 1));
}
