//! The engine and the payment lane against a real database, with rails whose answers the test decides.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony::domain::{OutboxId, Outcome};
use symphony::engine::gate::BreakerSettings;
use symphony::engine::{self, Engine, EngineSettings, LaneMetrics, Points, Start};
use symphony::lanes::payments::rail::{
    Answer, Inquiry, InquiryTerms, Payment, Rail, Terms, Verdict,
};
use symphony::lanes::payments::{PaymentLane, RailSetup};
use symphony::money::Defect;
use tokio::sync::Notify;

use crate::support::{TestDb, payment, until};

/// A provider inside the test: it remembers what it executed, by key.
#[derive(Default)]
struct Bank {
    executed: Mutex<HashMap<OutboxId, usize>>,
    order: Mutex<Vec<(String, i64)>>,
    sends: AtomicUsize,
    inquiries: AtomicUsize,
    running: AtomicUsize,
    most_at_once: AtomicUsize,
    /// Calls wait here while it is closed.
    open: Notify,
}

/// What a rail answers to the nth send of a payment.
type Script = dyn Fn(&Bank, &Payment, usize) -> Reply + Send + Sync;

enum Reply {
    /// Execute, if the key is new, and answer this.
    Executed(Answer),
    /// Answer this without executing.
    Not(Answer),
    /// Execute and never answer.
    ExecutedSilence,
    /// Execute and answer once the bank is opened.
    ExecutedLater(Answer),
    Panic,
}

struct ScriptedRail {
    bank: Arc<Bank>,
    terms: Terms,
    script: Box<Script>,
}

impl Bank {
    fn execute(&self, payment: &Payment) {
        *self.executed.lock().unwrap().entry(payment.key).or_default() += 1;
        self.order.lock().unwrap().push((payment.participant_id.clone(), payment.sequence_id));
    }

    fn executions(&self, item: OutboxId) -> usize {
        self.executed.lock().unwrap().get(&item).copied().unwrap_or(0)
    }

    fn knows(&self, payment: &Payment) -> Inquiry {
        match self.executions(payment.key) {
            0 => Inquiry::NotFound,
            _ => Inquiry::Found(Answer::accepted("BANK-1")),
        }
    }
}

#[async_trait::async_trait]
impl Rail for ScriptedRail {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn validate(&self, payment: &Payment) -> Result<(), Defect> {
        if payment.payload.get().contains("nowhere") {
            return Err(Defect::new("INVALID_DESTINATION", "destination", "is nowhere"));
        }
        Ok(())
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        let nth = self.bank.sends.fetch_add(1, Ordering::SeqCst);
        let running = self.bank.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.bank.most_at_once.fetch_max(running, Ordering::SeqCst);
        let reply = (self.script)(&self.bank, payment, nth);
        let answer = match reply {
            Reply::Executed(answer) => {
                self.bank.execute(payment);
                answer
            }
            Reply::Not(answer) => answer,
            Reply::ExecutedSilence => {
                self.bank.execute(payment);
                std::future::pending().await
            }
            Reply::ExecutedLater(answer) => {
                self.bank.execute(payment);
                self.bank.open.notified().await;
                answer
            }
            Reply::Panic => panic!("as the script says"),
        };
        self.bank.running.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    async fn inquire(&self, payment: &Payment) -> Inquiry {
        self.bank.inquiries.fetch_add(1, Ordering::SeqCst);
        self.bank.knows(payment)
    }
}

fn terms() -> Terms {
    Terms {
        timeout: Duration::from_secs(2),
        inquiry_timeout: Duration::from_secs(2),
        key_lifetime: Some(Duration::from_hours(24)),
        inquiry: InquiryTerms::NotFoundProvesNothing,
    }
}

fn rail(
    bank: &Arc<Bank>,
    terms: Terms,
    script: impl Fn(&Bank, &Payment, usize) -> Reply + Send + Sync + 'static,
) -> ScriptedRail {
    ScriptedRail { bank: bank.clone(), terms, script: Box::new(script) }
}

fn setup(name: &str, rail: ScriptedRail) -> RailSetup {
    RailSetup {
        name: name.to_owned(),
        rail: Arc::new(rail),
        concurrency_max: 16,
        rate: None,
        breaker: BreakerSettings { failures_to_open: 1_000, ..BreakerSettings::default() },
    }
}

fn settings() -> EngineSettings {
    EngineSettings {
        lease: Duration::from_secs(8),
        lease_margin: Duration::from_secs(1),
        shutdown: Duration::from_secs(5),
        ..EngineSettings::default()
    }
}

fn start_with(
    db: &TestDb,
    rails: Vec<RailSetup>,
    settings: EngineSettings,
    points: Points,
) -> Engine {
    let lane = PaymentLane::new(db.database.executor(), engine::new_worker_id("test"), rails);
    Engine::start(Start {
        lane,
        database: db.database.clone(),
        listen: db.options.clone(),
        settings,
        metrics: Arc::new(LaneMetrics::default()),
        points,
    })
    .unwrap()
}

fn start(db: &TestDb, rails: Vec<RailSetup>) -> Engine {
    start_with(db, rails, settings(), Points::default())
}

fn accepted() -> Answer {
    Answer::accepted("BANK-1")
}

async fn pending(db: &TestDb) -> i64 {
    db.count("payment_outbox_pending").await
}

async fn until_empty(db: &TestDb) {
    until("everything has ended", async || pending(db).await == 0).await;
}

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
async fn a_timeout_is_asked_about_and_never_sent_again_if_it_was_executed() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let short = Terms { timeout: Duration::from_millis(200), ..terms() };
    let engine =
        start(&db, vec![setup("sepa", rail(&bank, short, |_, _, _| Reply::ExecutedSilence))]);
    until("the timeout is written down", async || !db.ledger(item).await.is_empty()).await;
    db.make_due(item).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 DISPATCHED"]);
    assert_eq!(bank.executions(item), 1);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 1, "asked, not sent again");
    assert!(db.one::<bool>("SELECT outcome_unknown AND error_code = 'TIMEOUT' FROM payment_outbox_attempts WHERE attempt_no = 1").await);
}

#[tokio::test]
async fn an_unknown_outcome_the_rail_does_not_know_of_is_sent_again_under_the_same_key() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let script = |_: &Bank, _: &Payment, nth: usize| {
        if nth == 0 {
            Reply::Not(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset"))
        } else {
            Reply::Executed(accepted())
        }
    };
    let engine = start(&db, vec![setup("sepa", rail(&bank, terms(), script))]);
    until("the loss is written down", async || !db.ledger(item).await.is_empty()).await;
    db.make_due(item).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 DISPATCHED"]);
    assert_eq!(bank.inquiries.load(Ordering::SeqCst), 1);
    assert_eq!(bank.executions(item), 1);
}

#[tokio::test]
async fn an_unknown_outcome_is_parked_when_the_key_is_too_old_and_not_found_proves_nothing() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    // Three seconds: less than the timeout that a resend would have to fit.
    let forgetful = Terms { key_lifetime: Some(Duration::from_secs(1)), ..terms() };
    let script = |_: &Bank, _: &Payment, _: usize| {
        Reply::Not(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset"))
    };
    let engine = start(&db, vec![setup("sepa", rail(&bank, forgetful, script))]);
    until("the loss is written down", async || !db.ledger(item).await.is_empty()).await;
    db.make_due(item).await;
    until("it is parked", async || db.state(item).await == "PARKED").await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 1);
    assert!(db.one::<bool>("SELECT error_code = 'CANNOT_BE_SETTLED' FROM payment_outbox_attempts WHERE attempt_no = 2").await);
}

#[tokio::test]
async fn not_found_is_believed_only_after_the_settle_delay() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let settling = Terms {
        key_lifetime: None,
        inquiry: InquiryTerms::NotFoundIsFinalAfter(Duration::from_mins(10)),
        ..terms()
    };
    let script = |_: &Bank, _: &Payment, nth: usize| {
        if nth == 0 {
            Reply::Not(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset"))
        } else {
            Reply::Executed(accepted())
        }
    };
    let engine = start(&db, vec![setup("sepa", rail(&bank, settling, script))]);
    until("the loss is written down", async || db.ledger(item).await.len() == 1).await;
    db.make_due(item).await;
    until("it waits", async || db.ledger(item).await.len() == 2).await;
    assert!(db.one::<bool>("SELECT next_attempt_at > clock_timestamp() + INTERVAL '9 minutes' FROM payment_outbox_pending").await);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 1);
    // Ten minutes later: the ledger is the clock, so its times are set back.
    db.sql("ALTER TABLE payment_outbox_attempts DISABLE TRIGGER USER").await;
    db.sql("UPDATE payment_outbox_attempts SET completed_at = completed_at - INTERVAL '11 minutes', claimed_at = claimed_at - INTERVAL '11 minutes'").await;
    db.make_due(item).await;
    until_empty(&db).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.executions(item), 1);
    assert_eq!(db.ledger(item).await, ["1 RETRYABLE", "2 RETRYABLE", "3 DISPATCHED"]);
}

#[tokio::test]
async fn a_rail_that_can_neither_deduplicate_nor_be_asked_parks_at_once() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    db.database
        .operator()
        .configure_rail("wire", &crate::support::act(), None, None, Some(true))
        .await
        .unwrap();
    let blind = Terms { key_lifetime: None, inquiry: InquiryTerms::Impossible, ..terms() };
    let lost = db.enqueue(&payment("lost", "acme", "wire")).await.outbox_id;
    let fine = db.enqueue(&payment("fine", "acme", "wire")).await.outbox_id;
    let script = |_: &Bank, payment: &Payment, _: usize| match payment.instruction_id.as_str() {
        "lost" => Reply::Not(Answer::trouble(Verdict::Unknown, "CONNECTION_LOST", "reset")),
        _ => Reply::Executed(accepted()),
    };
    let engine = start(&db, vec![setup("wire", rail(&bank, blind, script))]);
    until("one is parked and one done", async || {
        db.state(lost).await == "PARKED" && db.state(fine).await == "DISPATCHED"
    })
    .await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_panic_in_a_rail_is_an_unknown_outcome_and_the_worker_goes_on() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let bad = db.enqueue(&payment("bad", "acme", "sepa")).await.outbox_id;
    let good = db.enqueue(&payment("good", "acme", "sepa")).await.outbox_id;
    let script = |_: &Bank, payment: &Payment, _: usize| match payment.instruction_id.as_str() {
        "bad" => Reply::Panic,
        _ => Reply::Executed(accepted()),
    };
    let engine = start(&db, vec![setup("sepa", rail(&bank, terms(), script))]);
    until("both have an outcome", async || db.count("payment_outbox_attempts").await == 2).await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.state(good).await, "DISPATCHED");
    assert!(db.one::<bool>(&format!("SELECT outcome_unknown AND error_code = 'PANIC' FROM payment_outbox_attempts WHERE outbox_id = '{bad}'")).await);
    assert!(
        db.one::<bool>(&format!(
            "SELECT must_inquire FROM payment_outbox_pending WHERE outbox_id = '{bad}'"
        ))
        .await
    );
}

#[tokio::test]
async fn what_is_invalid_fails_unsent_and_what_may_have_been_sent_is_parked_instead() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let number =
        symphony::domain::Payload::parse(r#"{"amount": {"value": 10.00, "currency": "EUR"}}"#)
            .unwrap();
    let nowhere = symphony::domain::Payload::parse(
        r#"{"amount": {"value": "10.00", "currency": "EUR"}, "destination": "nowhere"}"#,
    )
    .unwrap();
    let mut ids = Vec::new();
    for (name, payload) in [("number", &number), ("nowhere", &nowhere), ("maybe sent", &nowhere)] {
        let request = symphony::domain::PaymentRequest {
            payload: payload.clone(),
            ..payment(name, "acme", "sepa")
        };
        ids.push(db.enqueue(&request).await.outbox_id);
    }
    // The third was sent before, and nobody knows what became of it.
    let claimed = db.claim("lost worker", 3).await;
    for item in claimed {
        let outcome = if item.outbox_id == ids[2] { Outcome::Unknown } else { Outcome::Retryable };
        db.complete("lost worker", item.lease(), outcome).await.unwrap();
    }

    let engine = start(
        &db,
        vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::Executed(accepted())))],
    );
    until("all have ended or wait for a person", async || {
        db.count("payment_outbox_attempts").await == 6
    })
    .await;
    assert_eq!(engine.stop().await, 0);
    assert_eq!(bank.sends.load(Ordering::SeqCst), 0);
    assert_eq!(db.state(ids[0]).await, "FAILED");
    assert_eq!(db.state(ids[1]).await, "FAILED");
    assert_eq!(db.state(ids[2]).await, "PARKED");
    let codes: Vec<String> = sqlx::query_scalar(
        "SELECT error_code FROM payment_outbox_attempts WHERE attempt_no = 2 ORDER BY instruction_id",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!(codes, ["INVALID_DESTINATION", "INVALID_DESTINATION", "INVALID_AMOUNT"]);
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
    let short = EngineSettings {
        lease: Duration::from_secs(3),
        lease_margin: Duration::ZERO,
        ..settings()
    };
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
async fn a_late_yes_is_kept_as_evidence_and_a_contradiction_is_an_alarm() {
    let db = TestDb::new().await;
    let bank = Arc::new(Bank::default());
    let item = db.enqueue(&payment("one", "acme", "sepa")).await.outbox_id;
    let engine = start(
        &db,
        vec![setup("sepa", rail(&bank, terms(), |_, _, _| Reply::ExecutedLater(accepted())))],
    );
    let metrics = engine.metrics().clone();
    until("it is under way", async || bank.running.load(Ordering::SeqCst) == 1).await;
    // The lease passes to another, who is told something else.
    db.expire(item).await;
    let other =
        until_some("another takes it over", async || db.claim("other", 1).await.pop()).await;
    assert!(other.must_inquire);
    db.complete("other", other.lease(), Outcome::Failed).await.unwrap();
    bank.open.notify_one();
    until("the late yes was kept", async || metrics.late_outcomes.get() == 1).await;
    assert_eq!(metrics.late_conflicts.get(), 1);
    assert_eq!(engine.stop().await, 0);
    assert_eq!(db.state(item).await, "FAILED");
    assert_eq!(db.count("payment_outbox_events WHERE event_type = 'LATE_OUTCOME' AND (details->>'conflict')::boolean").await, 1);
}

async fn until_some<T>(claim: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut found = None;
    until(claim, async || {
        found = look().await;
        found.is_some()
    })
    .await;
    found.unwrap()
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
    db.database.operator().pause(&switch, &act).await.unwrap();
    db.enqueue_stream("acme", "sepa", 10).await;
    db.enqueue_stream("acme", "other", 10).await;
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
async fn one_doorman_follows_hints_and_another_takes_over_when_it_leaves() {
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
        until("one doorman, all listening", async || {
            workers.iter().filter(|w| w.metrics().doorman.get() == 1).count() == 1
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
        let doorman = workers.iter().position(|w| w.metrics().doorman.get() == 1).unwrap();
        assert_eq!(workers.remove(doorman).stop().await, 0);
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
        lane: PaymentLane::new(db.database.executor(), engine::new_worker_id("test"), rails),
        database: db.database.clone(),
        listen: db.options.clone(),
        settings: settings(),
        metrics: Arc::new(LaneMetrics::default()),
        points: Points::default(),
    });
    assert_eq!(refused.unwrap_err().field, "worker.lease_seconds");
    assert_eq!(db.count("payment_outbox_pending WHERE lease_token IS NOT NULL").await, 0);
}
