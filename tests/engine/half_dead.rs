//! A worker that is half dead, or whose database is: it neither claims what it cannot complete, nor keeps what
//! it will never complete, nor hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use symphony::db::{Database, RoleSource};
use symphony::engine::BreakerSettings;
use symphony::engine::{self, Engine, EngineSettings, Point, Points, Start};
use symphony::lanes::payments::rail::{Answer, Inquiry, Payment, Rail, Terms};
use symphony::lanes::payments::{PaymentLane, RailSetup};
use symphony::money::Defect;

use super::bank::{
    Bank, Reply, ScriptedRail, accepted, rail, settings, setup, short_lease, start, start_with,
    terms, until_empty,
};
use crate::support::proxy::Swallowing;
use crate::support::{TestDb, payment, run, until};

fn accepting(bank: &Arc<Bank>) -> ScriptedRail {
    rail(bank, terms(), |_, _, _| Reply::Executed(accepted()))
}

/// A call of this function waits for a lock.
async fn hangs(db: &TestDb, function: &str) -> bool {
    let waiting =
        "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    db.count(&format!("{waiting} AND query LIKE '%{function}%'")).await > 0
}

#[tokio::test]
async fn a_worker_whose_completer_died_claims_no_more_and_lets_its_leases_run_out() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let short = short_lease();
    let dies = Points::new(|point| {
        assert!(point != Point::BeforeComplete, "the completer dies, as the test says");
    });
    let engine = start_with(&db, vec![setup("sepa", accepting(&bank))], short, dies);
    tokio::time::timeout(Duration::from_secs(20), engine.broken()).await.expect("it is noticed");
    let claims = engine.metrics().claimed_items.get();
    db.enqueue_stream("brio", "sepa", 5).await;
    // The money moved and nobody wrote it down: the lease must end, so that another worker asks. (It may be
    // repaired the moment it has expired, so an expired lease is nothing to wait for; no live lease is.)
    until("the lease has run out", async || {
        db.count("payment_outbox_pending WHERE lease_expires_at >= clock_timestamp()").await == 0
    })
    .await;
    assert_eq!(engine.metrics().claimed_items.get(), claims, "nothing more was claimed");
    engine.stop().await;
    let other = start(&db, vec![setup("sepa", accepting(&bank))]);
    until_empty(&db).await;
    assert_eq!(other.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 ZOMBIE_REQUEUE", "2 DISPATCHED"]);
    assert_eq!(bank.executions(item), 1);
}

#[tokio::test]
async fn a_claim_under_way_when_the_engine_breaks_is_waited_for_and_given_back_unsent() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let slow = Terms { timeout: Duration::from_secs(30), ..terms() };
    let later = rail(&bank, slow, |_, _, _| Reply::ExecutedLater(accepted()));
    let patient = EngineSettings {
        lease: Duration::from_mins(2),
        shutdown: Duration::from_secs(20),
        ..settings()
    };
    let dies = Points::new(|point| {
        assert!(point != Point::BeforeComplete, "the completer dies, as the test says");
    });
    let engine = start_with(&db, vec![setup("sepa", later)], patient, dies);
    until("it is under way", async || bank.running.load(Ordering::SeqCst) == 1).await;
    let mut locker = db.admin().await;
    // Asked for before the lock is there, so that it is due for whichever claim meets the lock.
    run(&mut locker, "BEGIN").await.unwrap();
    symphony::payments::enqueue(&mut locker, &payment("two", "brio", "sepa")).await.unwrap();
    run(&mut locker, "LOCK TABLE payment_outbox_pending IN ACCESS EXCLUSIVE MODE").await.unwrap();
    until("a claim hangs", async || hangs(&db, "claim_outbox_batch").await).await;
    bank.open.notify_one();
    let unlock = async {
        until("the completer is dead", async || bank.running.load(Ordering::SeqCst) == 0).await;
        run(&mut locker, "COMMIT").await.unwrap();
    };
    tokio::join!(engine.broken(), unlock);
    assert_eq!(engine.metrics().claimed_items.get(), 2, "that claim was waited for");
    until("it was given back", async || engine.metrics().returned_unsent.get() == 1).await;
    assert_eq!(db.count("payment_outbox_pending WHERE lease_token IS NULL").await, 1);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 1);
    assert_eq!(bank.executions(item), 1);
}

#[tokio::test]
async fn outcomes_wait_for_the_operator_and_nothing_more_is_claimed_meanwhile() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let grant = "EXECUTE ON FUNCTION complete_outbox_attempts";
    run(&mut db.admin().await, &format!("REVOKE {grant} FROM symphony_executor")).await.unwrap();
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let engine = start(&db, vec![setup("sepa", accepting(&bank))]);
    let metrics = engine.metrics().clone();
    until("it could not be written, twice", async || metrics.database_errors.get() >= 2).await;
    db.enqueue_stream("brio", "sepa", 5).await;
    until("a few more tries", async || metrics.database_errors.get() >= 5).await;
    assert_eq!(metrics.claimed_items.get(), 1, "what cannot be completed is not claimed");
    run(&mut db.admin().await, &format!("GRANT {grant} TO symphony_executor")).await.unwrap();
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 DISPATCHED"]);
    assert_eq!(metrics.integrity_alarms.get(), 0);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_stop_ends_in_time_though_a_claim_is_not_answered() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let impatient = EngineSettings { shutdown: Duration::from_millis(500), ..settings() };
    let mut locker = db.admin().await;
    run(&mut locker, "BEGIN; LOCK TABLE payment_outbox_pending IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let rails = vec![setup("sepa", accepting(&bank))];
    let engine = start_with(&db, rails, impatient, Points::default());
    until("the claim hangs", async || hangs(&db, "claim_outbox_batch").await).await;
    let stopped = tokio::time::timeout(Duration::from_secs(15), engine.stop()).await;
    assert_eq!(stopped.expect("a stop that ends"), 0);
}

/// A rail whose terms cannot even be read once it was started.
struct Hollow {
    sound: ScriptedRail,
    asked: AtomicUsize,
    panics: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Rail for Hollow {
    fn terms(&self) -> &Terms {
        // The lane asks for the endpoint and the engine for the time limit, both at start.
        if self.asked.fetch_add(1, Ordering::SeqCst) >= 2 {
            self.panics.fetch_add(1, Ordering::SeqCst);
            panic!("as the test says");
        }
        self.sound.terms()
    }

    fn validate(&self, payment: &Payment) -> Result<(), Defect> {
        self.sound.validate(payment)
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        self.sound.dispatch(payment).await
    }

    async fn inquire(&self, payment: &Payment) -> Inquiry {
        self.sound.inquire(payment).await
    }
}

#[tokio::test]
async fn an_item_whose_outcome_got_lost_in_a_panic_is_not_held_for_ever() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let panics = Arc::new(AtomicUsize::new(0));
    let hollow = RailSetup {
        previous: Vec::new(),
        name: "sepa".to_owned(),
        rail: Arc::new(Hollow {
            sound: accepting(&bank),
            asked: AtomicUsize::new(0),
            panics: panics.clone(),
        }),
        concurrency_max: 1,
        rate: None,
        breaker: BreakerSettings::default(),
    };
    let engine = start(&db, vec![hollow]);
    let metrics = engine.metrics().clone();
    until("it panicked, and panicked again when asked why", async || {
        panics.load(Ordering::SeqCst) == 2
    })
    .await;
    until("it was let go", async || metrics.held_items.get() == 0).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await.len(), 0);
    assert_eq!(db.count("payment_outbox_pending WHERE lease_token IS NOT NULL").await, 1);
}

#[tokio::test]
async fn a_connection_that_swallows_everything_in_the_middle_of_a_write_holds_up_nobody_for_ever() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let proxy = Swallowing::start(&db.options).await;
    let database = Database::connect(proxy.options.clone(), 4, RoleSource::EachTransaction)
        .await
        .unwrap()
        .with_call_limit(Duration::from_secs(3));
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let slow = Terms { timeout: Duration::from_secs(30), ..terms() };
    let later = rail(&bank, slow, |_, _, _| Reply::ExecutedLater(accepted()));
    let worker = engine::new_worker_id("test");
    let engine = Engine::start(Start {
        lane: PaymentLane::new(database.worker(), worker, vec![setup("sepa", later)]),
        database: database.clone(),
        listen: proxy.options.clone(),
        settings: EngineSettings { lease: Duration::from_mins(2), ..settings() },
        metrics: Arc::default(),
        points: Points::default(),
    })
    .unwrap();
    until("it is under way", async || bank.running.load(Ordering::SeqCst) == 1).await;
    // The connection is lost between the write and its COMMIT: the server goes on holding the row.
    let mut locker = db.admin().await;
    run(&mut locker, "BEGIN; SELECT FROM payment_outbox_pending FOR UPDATE").await.unwrap();
    bank.open.notify_one();
    until("the outcome is being written", async || hangs(&db, "complete_outbox_attempts").await)
        .await;
    proxy.swallow();
    run(&mut locker, "ROLLBACK").await.unwrap();
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 DISPATCHED"]);
}
