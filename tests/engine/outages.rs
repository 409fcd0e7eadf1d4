//! The bank is down, and comes back: what waited only for it goes out within seconds, and nothing else changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use symphony::engine::{Answered, BreakerSettings, BreakerState, TroubleKind};
use symphony::engine::{Engine, Points};
use symphony::lanes::payments::RailSetup;
use symphony::lanes::payments::rail::{Answer, Inquiry, Payment, Rail, Terms, Verdict};
use symphony::money::Defect;

use super::bank::{Bank, Reply, accepted, rail, settings, setup, start_with, terms, until_empty};
use crate::support::{TestDb, act, until};

fn away() -> Answer {
    Answer::trouble(Verdict::Retryable, "CONNECT_FAILED", "connection refused")
}

/// A rail that is away while the switch is on.
fn switched(bank: &Arc<Bank>, down: &Arc<AtomicBool>, breaker: BreakerSettings) -> RailSetup {
    let down = down.clone();
    let script = move |_: &Bank, _: &Payment, _: usize| {
        if down.load(Ordering::SeqCst) { Reply::Not(away()) } else { Reply::Executed(accepted()) }
    };
    RailSetup { breaker, ..setup("sepa", rail(bank, terms(), script)) }
}

fn quick() -> BreakerSettings {
    BreakerSettings {
        failures_to_open: 3,
        open_for: Duration::from_millis(100),
        open_for_max: Duration::from_millis(400),
    }
}

fn start(db: &TestDb, rail: RailSetup) -> Engine {
    start_with(db, vec![rail], settings(), Points::default())
}

fn breaker(engine: &Engine) -> BreakerState {
    engine.metrics().destinations.get().unwrap()[0].state()
}

/// As after an hour of it: every item's next try is far away.
async fn after_an_hour_of_trouble(db: &TestDb) {
    db.sql(
        "UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + INTERVAL '1 hour' \
          WHERE lease_token IS NULL AND hasten_from IS NOT NULL",
    )
    .await;
}

#[tokio::test]
async fn what_waited_for_a_rail_goes_out_as_soon_as_it_is_back_whatever_its_own_pause() {
    let db = TestDb::new().await;
    let (bank, down) = (Arc::new(Bank::default()), Arc::new(AtomicBool::new(true)));
    db.enqueue_stream("acme", "sepa", 40).await;
    let engine = start(&db, switched(&bank, &down, quick()));
    until("the rail is left alone", async || breaker(&engine) == BreakerState::Open).await;
    until("nothing is in flight", async || {
        db.count("payment_outbox_pending WHERE lease_token IS NOT NULL").await == 0
    })
    .await;
    after_an_hour_of_trouble(&db).await;
    // Probes go on although nothing is due for an hour.
    let sends = bank.sends.load(Ordering::SeqCst);
    until("it is probed", async || bank.sends.load(Ordering::SeqCst) >= sends + 3).await;
    after_an_hour_of_trouble(&db).await;
    down.store(false, Ordering::SeqCst);
    let returned_at = Instant::now();
    until_empty(&db).await;
    println!(
        "40 payments went out {} ms after the rail was back",
        returned_at.elapsed().as_millis()
    );
    assert!(returned_at.elapsed() < Duration::from_secs(5), "{:?}", returned_at.elapsed());
    assert_eq!(db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await, 40);
    assert!(bank.executed.lock().unwrap().values().all(|times| *times == 1));
    let page = symphony_server::metrics::render(
        &[("payments", engine.metrics().clone())],
        &symphony_server::metrics::Known::default(),
    );
    for line in [
        "rail_breaker_state{rail=\"sepa\"} 0",
        "rail_answers_total{rail=\"sepa\",answer=\"accepted\"} 40",
        "rail_rate_limit_per_second{rail=\"sepa\"} 0",
    ] {
        assert!(page.contains(line), "{line} is missing: {page}");
    }
    let sepa = &engine.metrics().destinations.get().unwrap()[0];
    assert!(sepa.opened.get() >= 1);
    assert_eq!(
        sepa.troubles(TroubleKind::Unreachable),
        sepa.answers(Answered::Retryable),
        "no other trouble was there"
    );
    assert_eq!(engine.stop().await, 0);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_single_payment_finds_a_quiet_rail_again_within_seconds() {
    let db = TestDb::new().await;
    let (bank, down) = (Arc::new(Bank::default()), Arc::new(AtomicBool::new(true)));
    db.enqueue_stream("acme", "sepa", 1).await;
    let engine = start(&db, switched(&bank, &down, BreakerSettings::default()));
    // Three troubles over three seconds, of one item.
    until("the rail is left alone", async || breaker(&engine) != BreakerState::Closed).await;
    after_an_hour_of_trouble(&db).await;
    down.store(false, Ordering::SeqCst);
    let returned_at = Instant::now();
    until_empty(&db).await;
    assert!(returned_at.elapsed() < Duration::from_secs(8), "{:?}", returned_at.elapsed());
    assert_eq!(engine.stop().await, 0);
}

#[tokio::test]
async fn what_the_bank_asked_to_wait_for_is_not_hastened() {
    let db = TestDb::new().await;
    let (bank, down) = (Arc::new(Bank::default()), Arc::new(AtomicBool::new(true)));
    let items = db.enqueue_stream("acme", "sepa", 6).await;
    let asked = items[0];
    let switch = down.clone();
    let script = move |_: &Bank, payment: &Payment, _: usize| {
        if !switch.load(Ordering::SeqCst) {
            return Reply::Executed(accepted());
        }
        let wait = (payment.outbox_id == asked).then_some(Duration::from_hours(2));
        Reply::Not(Answer { retry_after: wait, ..away() })
    };
    let guarded = RailSetup { breaker: quick(), ..setup("sepa", rail(&bank, terms(), script)) };
    let engine = start(&db, guarded);
    until("the rail is left alone", async || breaker(&engine) == BreakerState::Open).await;
    down.store(false, Ordering::SeqCst);
    until("the others are paid", async || db.count("payment_outbox_pending").await == 1).await;
    until("it has recovered", async || breaker(&engine) == BreakerState::Closed).await;
    let due: bool = db
        .one("SELECT next_attempt_at > clock_timestamp() + INTERVAL '119 minutes' FROM payment_outbox_pending")
        .await;
    assert!(due, "the bank asked for two hours");
    assert_eq!(bank.executions(asked), 0);
    assert_eq!(engine.stop().await, 0);
}

/// Executes the first send and loses its answer; while the switch is on, it cannot be asked either.
struct LosesAnswers {
    bank: Arc<Bank>,
    down: Arc<AtomicBool>,
    terms: Terms,
}

#[async_trait::async_trait]
impl Rail for LosesAnswers {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn validate(&self, _: &Payment) -> Result<(), Defect> {
        Ok(())
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        self.bank.sends.fetch_add(1, Ordering::SeqCst);
        self.bank.execute(payment);
        Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "the connection was lost")
    }

    async fn inquire(&self, payment: &Payment) -> Inquiry {
        self.bank.inquiries.fetch_add(1, Ordering::SeqCst);
        if self.down.load(Ordering::SeqCst) {
            return Inquiry::Unclear(Answer::trouble(Verdict::Unknown, "CONNECT_FAILED", "away"));
        }
        self.bank.knows(payment)
    }
}

#[tokio::test]
async fn what_may_have_been_sent_is_asked_about_when_the_rail_is_back_and_never_sent_again() {
    let db = TestDb::new().await;
    let (bank, down) = (Arc::new(Bank::default()), Arc::new(AtomicBool::new(true)));
    db.enqueue_stream("acme", "sepa", 8).await;
    let loses = LosesAnswers { bank: bank.clone(), down: down.clone(), terms: terms() };
    let scripted = setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Panic));
    let guarded = RailSetup { rail: Arc::new(loses), breaker: quick(), ..scripted };
    let engine = start(&db, guarded);
    until("all were sent, and asked about in vain", async || {
        bank.sends.load(Ordering::SeqCst) == 8
            && db.count("payment_outbox_attempts WHERE asked_only AND NOT spends_attempt").await
                >= 1
    })
    .await;
    after_an_hour_of_trouble(&db).await;
    down.store(false, Ordering::SeqCst);
    until_empty(&db).await;
    assert_eq!(bank.sends.load(Ordering::SeqCst), 8, "nothing was sent twice");
    assert_eq!(db.count("payment_outbox_attempts WHERE state = 'DISPATCHED'").await, 8);
    assert_eq!(engine.stop().await, 0);
    db.assert_ledger_holds().await;
}

#[tokio::test]
async fn a_person_can_have_a_rail_tried_at_once_and_sees_how_it_is() {
    let db = TestDb::new().await;
    let (bank, down) = (Arc::new(Bank::default()), Arc::new(AtomicBool::new(true)));
    db.enqueue_stream("acme", "sepa", 10).await;
    let long = Duration::from_hours(1);
    let never =
        BreakerSettings { failures_to_open: 3, open_for: long, open_for_max: Duration::MAX };
    let engine = start(&db, switched(&bank, &down, never));
    let (reader, operator) = (db.database.auditor(), db.database.operator());
    until("it is said to be left alone", async || {
        let seen = reader.destinations(Some("payments")).await.unwrap();
        seen.iter().any(|rail| rail.name == "sepa" && rail.breaker == "OPEN")
    })
    .await;
    let seen = reader.destinations(None).await.unwrap().remove(0);
    assert_eq!((seen.workers, seen.workers_away), (1, 1));
    assert_eq!(seen.last_trouble.as_deref(), Some("CONNECT_FAILED"));
    assert!(seen.open_since.is_some() && seen.next_probe_at.is_some() && seen.troubles >= 3);
    assert!(reader.unserved().await.unwrap().is_empty());

    down.store(false, Ordering::SeqCst);
    let dry_run = symphony::domain::Act { dry_run: true, ..act() };
    let dry = operator.reset_destination("payments", "sepa", &dry_run).await.unwrap();
    assert_eq!(dry.state_before, "OPEN");
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'BREAKER_RESET'").await, 0);
    operator.reset_destination("payments", "sepa", &act()).await.unwrap();
    until_empty(&db).await;
    assert_eq!(
        db.count("payment_outbox_events WHERE event_type = 'BREAKER_RESET' AND actor IS NOT NULL")
            .await,
        1
    );
    let refused = operator.reset_destination("payments", "spea", &act()).await;
    assert_eq!(crate::support::code(refused), "P7007");
    // A worker that stops is gone at once, and what waits then is unserved.
    assert_eq!(engine.stop().await, 0);
    db.enqueue_stream("brio", "sepa", 2).await;
    db.enqueue_stream("brio", "swift", 3).await;
    let unserved = reader.unserved().await.unwrap();
    let told: Vec<_> = unserved.iter().map(|u| (u.name.as_str(), u.pending)).collect();
    assert_eq!(told, [("sepa", Some(2)), ("swift", Some(3))]);
}

#[tokio::test]
async fn only_pauses_for_the_rails_sake_are_cut_short() {
    let db = TestDb::new().await;
    // Each waits an hour: for the rail, for the rail and a Retry-After, for its own sake, parked, leased, on another rail.
    for name in ["rail", "asked", "own", "parked", "leased"] {
        db.enqueue(&crate::support::payment(name, "acme", "sepa")).await;
    }
    db.enqueue(&crate::support::payment("other", "acme", "ach")).await;
    db.sql(
        "UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp() + INTERVAL '1 hour', must_inquire = true, \
                hasten_from = CASE instruction_id WHEN 'own' THEN NULL WHEN 'asked' THEN clock_timestamp() + INTERVAL '30 minutes' \
                                                  ELSE clock_timestamp() END, \
                hold = CASE instruction_id WHEN 'parked' THEN 'PARKED'::outbox_hold END, \
                claimed_by = CASE instruction_id WHEN 'leased' THEN 'w' END, \
                lease_token = CASE instruction_id WHEN 'leased' THEN gen_random_uuid() END, \
                lease_expires_at = CASE instruction_id WHEN 'leased' THEN clock_timestamp() + INTERVAL '1 minute' END",
    )
    .await;
    let executor = db.database.worker();
    assert_eq!(executor.hasten_payments("sepa", 1).await.unwrap(), 1, "the one that may go first");
    assert_eq!(executor.hasten_payments("sepa", 100).await.unwrap(), 1);
    assert_eq!(executor.hasten_payments("sepa", 100).await.unwrap(), 0);
    let due: Vec<(String, i32)> = sqlx::query_as(
        "SELECT instruction_id, ceil(extract(epoch FROM next_attempt_at - clock_timestamp()) / 60)::int \
           FROM payment_outbox_pending ORDER BY 2, 1",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    let due: Vec<_> = due.iter().map(|(name, minutes)| (name.as_str(), *minutes)).collect();
    let expected =
        [("rail", 0), ("asked", 30), ("leased", 60), ("other", 60), ("own", 60), ("parked", 60)];
    assert_eq!(due, expected);
    assert_eq!(
        db.count("payment_outbox_pending WHERE must_inquire").await,
        6,
        "nobody is trusted more"
    );
}
