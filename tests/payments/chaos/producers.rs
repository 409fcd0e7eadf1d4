//! Services that ask for payments, over connections that break. A payment counts as accepted once its COMMIT was
//! confirmed; one whose fate is unknown is asked for again under the same key until it is known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony::db::{Database, DbError, Role};
use symphony::domain::{OutboxId, Payload, PaymentRequest};
use symphony_lab::judge::Accepted;
use tokio::sync::watch;

use super::RAILS;
use super::dice::{Dice, Tally};

const PARTICIPANTS: u64 = 20;
/// Not more than this many of one rail wait at once: what is never worked off proves nothing.
const BACKLOG_MAX: i64 = 150;

/// What producers and the rest of a run share.
#[derive(Default)]
pub struct Books {
    /// By outbox id.
    pub accepted: Mutex<BTreeMap<String, Accepted>>,
    /// The outbox ids, by instruction.
    ids: Mutex<BTreeMap<String, OutboxId>>,
    /// Items waiting, by rail.
    pub backlog: [AtomicI64; RAILS.len()],
}

pub struct Producer {
    pub number: usize,
    pub database: Database,
    pub dice: Dice,
    pub books: Arc<Books>,
    pub tally: Arc<Tally>,
}

impl Producer {
    /// Ask for payments until told to stop.
    pub async fn produce(mut self, mut stop: watch::Receiver<bool>) {
        let mut pace = tokio::time::interval(Duration::from_millis(60));
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked: Vec<PaymentRequest> = Vec::new();
        for number in 0u64.. {
            tokio::select! {
                _ = pace.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let first = self.request(number, 0);
            let rail = RAILS.iter().position(|rail| rail.name == first.rail_type).unwrap();
            let choice = self.dice.between(1, 100);
            if self.books.backlog[rail].load(Ordering::Relaxed) > BACKLOG_MAX {
                continue;
            }
            match choice {
                1..=10 if !asked.is_empty() => {
                    let again = self.dice.pick(&asked).clone();
                    self.ask_alone(&again).await;
                    self.tally.add("repeated");
                }
                11..=16 => self.roll_back(&first).await,
                17..=20 if !asked.is_empty() => {
                    let other = PaymentRequest {
                        payload: payload("999999.99"),
                        ..self.dice.pick(&asked).clone()
                    };
                    self.reuse_key(&other).await;
                }
                21..=45 => {
                    let size = self.dice.between(2, 8);
                    let mut batch = vec![first];
                    batch.extend((1..size).map(|n| self.request(number, n)));
                    self.ask_many(&batch).await;
                    asked.extend(batch);
                }
                _ => {
                    self.ask_alone(&first).await;
                    asked.push(first);
                }
            }
        }
    }

    fn request(&mut self, number: u64, part: u64) -> PaymentRequest {
        let rail = match self.dice.between(1, 100) {
            1..=50 => RAILS[0],
            51..=80 => RAILS[1],
            _ => RAILS[2],
        };
        let amount = format!("{}.{:02}", self.dice.between(1, 9_999), self.dice.between(0, 99));
        PaymentRequest {
            instruction_id: format!("{}-{number}-{part}", self.number),
            participant_id: format!("merchant {:02}", self.dice.between(1, PARTICIPANTS)),
            idempotency_key: "pay".to_owned(),
            rail_type: rail.name.to_owned(),
            payload: payload(&amount),
            traceparent: None,
        }
    }

    async fn ask_alone(&self, request: &PaymentRequest) {
        let mut retries = RetryPause::new();
        let answer = loop {
            match self.database.producer().enqueue_payment(request).await {
                Ok(answer) => break answer,
                Err(error) => retries.wait_after(error).await,
            }
        };
        self.accept(request, answer.outbox_id);
    }

    async fn ask_many(&self, requests: &[PaymentRequest]) {
        let mut retries = RetryPause::new();
        let answers = loop {
            match self.database.producer().enqueue_payments(requests).await {
                Ok(answers) => break answers,
                Err(error) => retries.wait_after(error).await,
            }
        };
        assert_eq!(answers.len(), requests.len());
        for (request, answer) in requests.iter().zip(answers) {
            let answer =
                answer.unwrap_or_else(|error| panic!("{}: {error}", request.instruction_id));
            self.accept(request, answer.outbox_id);
        }
    }

    fn accept(&self, request: &PaymentRequest, outbox_id: OutboxId) {
        let amount: serde_json::Value = serde_json::from_str(request.payload.as_str()).unwrap();
        let accepted = Accepted {
            instruction_id: request.instruction_id.clone(),
            participant_id: request.participant_id.clone(),
            rail_type: request.rail_type.clone(),
            amount: format!("{} EUR", amount["amount"]["value"].as_str().unwrap()),
        };
        let mut ids = self.books.ids.lock().unwrap();
        let known = *ids.entry(request.instruction_id.clone()).or_insert(outbox_id);
        assert_eq!(known, outbox_id, "an idempotency key names one payment for ever");
        let mut books = self.books.accepted.lock().unwrap();
        let known = books.entry(outbox_id.to_string()).or_insert(accepted.clone());
        assert_eq!(*known, accepted, "an idempotency key names one payment for ever");
    }

    /// A service whose own work fails: it has asked for nothing.
    async fn roll_back(&self, request: &PaymentRequest) {
        let request = PaymentRequest {
            instruction_id: format!("rolled back {}", request.instruction_id),
            ..request.clone()
        };
        let mut retries = RetryPause::new();
        loop {
            match self.enqueue_only(&request).await {
                Ok(()) => break,
                Err(error) => retries.wait_after(error).await,
            }
        }
        self.tally.add("rolled back");
    }

    async fn enqueue_only(&self, request: &PaymentRequest) -> Result<(), DbError> {
        let mut transaction = self.database.begin(Role::Producer).await?;
        symphony::payments::enqueue(&mut transaction, request).await?;
        // Dropped without a COMMIT.
        Ok(())
    }

    async fn reuse_key(&self, request: &PaymentRequest) {
        let mut retries = RetryPause::new();
        loop {
            match self.database.producer().enqueue_payment(request).await {
                Err(DbError::KeyReused { .. }) => break,
                Ok(taken) => panic!("a key was taken for another payment: {taken:?}"),
                Err(error) => retries.wait_after(error).await,
            }
        }
        self.tally.add("reused key refused");
    }
}

/// Asking until there is an answer: with the same key, that is always safe.
struct RetryPause(tokio::time::Interval);

impl RetryPause {
    fn new() -> Self {
        Self(tokio::time::interval(Duration::from_millis(50)))
    }

    async fn wait_after(&mut self, error: DbError) {
        assert!(error.is_transient(), "a producer was refused: {error:?}");
        self.0.tick().await;
    }
}

fn payload(amount: &str) -> Payload {
    let text = format!(
        r#"{{"amount": {{"value": "{amount}", "currency": "EUR"}}, "destination": {{"iban": "DE89370400440532013000"}}}}"#
    );
    Payload::parse(&text).unwrap()
}
