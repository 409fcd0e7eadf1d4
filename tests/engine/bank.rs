//! A provider inside the test, and rails whose answers the test decides.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony::domain::OutboxId;
use symphony::engine::BreakerSettings;
use symphony::engine::{self, Engine, EngineSettings, LaneMetrics, Points, Start};
use symphony::lanes::payments::rail::{
    Answer, Endpoint, Inquiry, InquiryTerms, Payment, Rail, Terms,
};
use symphony::lanes::payments::{PaymentLane, RailSetup};
use symphony::money::Defect;
use tokio::sync::Notify;

use crate::support::{TestDb, until};

/// A provider inside the test: it remembers what it executed, by key.
#[derive(Default)]
pub(super) struct Bank {
    pub(super) executed: Mutex<HashMap<OutboxId, usize>>,
    pub(super) order: Mutex<Vec<(String, i64)>>,
    pub(super) sends: AtomicUsize,
    pub(super) inquiries: AtomicUsize,
    pub(super) running: AtomicUsize,
    pub(super) most_at_once: AtomicUsize,
    /// Calls wait here while it is closed.
    pub(super) open: Notify,
}

/// What a rail answers to the nth send of a payment.
pub(super) type Script = dyn Fn(&Bank, &Payment, usize) -> Reply + Send + Sync;

pub(super) enum Reply {
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

pub(super) struct ScriptedRail {
    pub(super) bank: Arc<Bank>,
    pub(super) terms: Terms,
    pub(super) script: Box<Script>,
}

impl Bank {
    pub(super) fn execute(&self, payment: &Payment) {
        *self.executed.lock().unwrap().entry(payment.outbox_id).or_default() += 1;
        self.order.lock().unwrap().push((payment.participant_id.clone(), payment.sequence_id));
    }

    pub(super) fn executions(&self, item: OutboxId) -> usize {
        self.executed.lock().unwrap().get(&item).copied().unwrap_or(0)
    }

    pub(super) fn knows(&self, payment: &Payment) -> Inquiry {
        match self.executions(payment.outbox_id) {
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

pub(super) fn terms() -> Terms {
    Terms {
        endpoint: Endpoint::new("test", "bank", "", ""),
        timeout: Duration::from_secs(2),
        inquiry_timeout: Duration::from_secs(2),
        key_lifetime: Some(Duration::from_hours(24)),
        inquiry: InquiryTerms::NotFoundProvesNothing,
    }
}

pub(super) fn rail(
    bank: &Arc<Bank>,
    terms: Terms,
    script: impl Fn(&Bank, &Payment, usize) -> Reply + Send + Sync + 'static,
) -> ScriptedRail {
    ScriptedRail { bank: bank.clone(), terms, script: Box::new(script) }
}

pub(super) fn setup(name: &str, rail: ScriptedRail) -> RailSetup {
    RailSetup {
        previous: Vec::new(),
        name: name.to_owned(),
        rail: Arc::new(rail),
        concurrency_max: 16,
        rate: None,
        breaker: BreakerSettings { failures_to_open: 1_000, ..BreakerSettings::default() },
    }
}

/// Leases of three seconds, without a margin.
pub(super) fn short_lease() -> EngineSettings {
    EngineSettings { lease: Duration::from_secs(3), lease_margin: Duration::ZERO, ..settings() }
}

pub(super) fn settings() -> EngineSettings {
    EngineSettings {
        lease: Duration::from_secs(8),
        lease_margin: Duration::from_secs(1),
        shutdown: Duration::from_secs(5),
        ..EngineSettings::default()
    }
}

pub(super) fn start_with(
    db: &TestDb,
    rails: Vec<RailSetup>,
    settings: EngineSettings,
    points: Points,
) -> Engine {
    let lane = PaymentLane::new(db.database.worker(), engine::new_worker_id("test"), rails);
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

pub(super) fn start(db: &TestDb, rails: Vec<RailSetup>) -> Engine {
    start_with(db, rails, settings(), Points::default())
}

pub(super) fn accepted() -> Answer {
    Answer::accepted("BANK-1")
}

pub(super) async fn pending(db: &TestDb) -> i64 {
    db.count("payment_outbox_pending").await
}

pub(super) async fn until_empty(db: &TestDb) {
    until("everything has ended", async || pending(db).await == 0).await;
}
