//! Transfers: which keys are known, and the one place where money moves.
//!
//! A key is taken under the lock, together with its line's place in the record; whoever comes second finds it
//! taken and waits for that line to reach the disk. So of any number of requests under one key one executes, and
//! all answer with the same reference.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::journal::{Journal, JournalFailed, Position};
use super::record::{BodyHash, Execution, Line, Record, Refusal, Summary};

/// The provider's books.
pub(super) struct Transfers {
    pub(super) journal: Journal,
    pub(super) clock: Clock,
    settle_ms: u64,
    key_lifetime_ms: Option<u64>,
    books: Mutex<Books>,
}

/// A transfer somebody asks for.
pub(super) struct Order {
    pub(super) key: String,
    pub(super) instruction: Option<String>,
    pub(super) participant: Option<String>,
    pub(super) sequence: Option<i64>,
    pub(super) body_sha256: BodyHash,
    /// `None` if the body does not say it properly: refused.
    pub(super) amount: Option<String>,
}

/// What the provider says to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TransferAnswer {
    Executed { number: u64, replayed: bool },
    Refused { code: String },
    KeyReused,
}

/// What is known of a key.
struct Known {
    body_sha256: BodyHash,
    last: TransferOutcome,
    /// Stays when a forgotten key comes again: money that moved stays moved.
    last_execution: Option<u64>,
    executions: u64,
    /// Deduplication counts from here.
    at_ms: u64,
    /// Inquiries find it from here.
    visible_from_ms: u64,
    position: Position,
}

#[derive(Clone)]
enum TransferOutcome {
    Executed(u64),
    Refused(String),
}

#[derive(Default)]
struct Books {
    known: HashMap<String, Known>,
    summary: Summary,
}

/// The code for a body without a proper amount, after ISO 20022.
const INVALID_AMOUNT: &str = "AM12";

impl Transfers {
    /// Books that remember what the record holds.
    pub(super) fn new(
        journal: Journal,
        record: Record,
        settle_ms: u64,
        key_lifetime_ms: Option<u64>,
    ) -> Self {
        let mut books = Books::default();
        for line in record.lines {
            let (key, hash, at_ms, outcome) = match line {
                Line::Executed(line) => {
                    (line.key, line.body_sha256, line.at_ms, TransferOutcome::Executed(line.number))
                }
                Line::Refused(line) => {
                    (line.key, line.body_sha256, line.at_ms, TransferOutcome::Refused(line.code))
                }
            };
            books.note(key, hash, outcome, at_ms, settle_ms, Position::ON_DISK);
        }
        let clock = Clock::default();
        Self { journal, clock, settle_ms, key_lifetime_ms, books: Mutex::new(books) }
    }

    /// Execute an order, once per key; with `refusal`, refuse it, unless the key has an outcome already.
    pub(super) async fn order(
        &self,
        order: Order,
        refusal: Option<&str>,
    ) -> Result<TransferAnswer, JournalFailed> {
        let (told, position) = self.decide(order, refusal)?;
        self.journal.on_disk(position).await?;
        Ok(told)
    }

    /// What became of a key: its reference, or the refusal's code. `None`: not found, or not visible yet.
    pub(super) async fn inquire(&self, key: &str) -> Result<Option<TransferAnswer>, JournalFailed> {
        let now_ms = self.clock.now_ms();
        let (told, position) = {
            let books = self.books();
            let Some(known) = books.known.get(key).filter(|known| known.visible_from_ms <= now_ms)
            else {
                return Ok(None);
            };
            let told = match (&known.last, known.last_execution) {
                (TransferOutcome::Executed(number), _) => {
                    TransferAnswer::Executed { number: *number, replayed: true }
                }
                // Refused only after it had been forgotten: the money had moved.
                (TransferOutcome::Refused(_), Some(number)) => {
                    TransferAnswer::Executed { number, replayed: true }
                }
                (TransferOutcome::Refused(code), None) => {
                    TransferAnswer::Refused { code: code.clone() }
                }
            };
            (told, known.position)
        };
        self.journal.on_disk(position).await?;
        Ok(Some(told))
    }

    /// The record in numbers, all of it on the disk.
    pub(super) async fn summary(&self) -> Result<Summary, JournalFailed> {
        let (summary, last) = {
            let books = self.books();
            (books.summary, self.journal.last())
        };
        self.journal.on_disk(last).await?;
        Ok(summary)
    }

    fn decide(
        &self,
        order: Order,
        refusal: Option<&str>,
    ) -> Result<(TransferAnswer, Position), JournalFailed> {
        let at_ms = self.clock.now_ms();
        let mut books = self.books();
        if let Some(known) = books.known.get(&order.key)
            && !self.forgotten(known, at_ms)
        {
            let told = if known.body_sha256 == order.body_sha256 {
                match &known.last {
                    TransferOutcome::Executed(number) => {
                        TransferAnswer::Executed { number: *number, replayed: true }
                    }
                    TransferOutcome::Refused(code) => {
                        TransferAnswer::Refused { code: code.clone() }
                    }
                }
            } else {
                TransferAnswer::KeyReused
            };
            return Ok((told, known.position));
        }

        let number = books.summary.executed + 1;
        let Order { key, instruction, participant, sequence, body_sha256, amount } = order;
        let (line, told, outcome) = match (refusal, amount) {
            (None, Some(amount)) => (
                Line::Executed(Execution {
                    number,
                    key: key.clone(),
                    instruction,
                    participant,
                    sequence,
                    body_sha256,
                    amount,
                    at_ms,
                }),
                TransferAnswer::Executed { number, replayed: false },
                TransferOutcome::Executed(number),
            ),
            (refusal, amount) => {
                let code = refusal.unwrap_or(INVALID_AMOUNT).to_owned();
                (
                    Line::Refused(Refusal {
                        code: code.clone(),
                        key: key.clone(),
                        instruction,
                        participant,
                        sequence,
                        body_sha256,
                        amount,
                        at_ms,
                    }),
                    TransferAnswer::Refused { code: code.clone() },
                    TransferOutcome::Refused(code),
                )
            }
        };
        // Under the lock, so that numbers stand in the file in their order.
        let position = self.journal.append(&line)?;
        books.note(key, body_sha256, outcome, at_ms, self.settle_ms, position);
        Ok((told, position))
    }

    fn forgotten(&self, known: &Known, now_ms: u64) -> bool {
        self.key_lifetime_ms
            .is_some_and(|lifetime_ms| now_ms >= known.at_ms.saturating_add(lifetime_ms))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn note(
        &mut self,
        key: String,
        body_sha256: BodyHash,
        outcome: TransferOutcome,
        at_ms: u64,
        settle_ms: u64,
        position: Position,
    ) {
        let known = match self.known.entry(key) {
            MapEntry::Occupied(known) => {
                let known = known.into_mut();
                *known = Known { body_sha256, last: outcome, at_ms, position, ..*known };
                known
            }
            MapEntry::Vacant(place) => place.insert(Known {
                body_sha256,
                last: outcome,
                last_execution: None,
                executions: 0,
                at_ms,
                visible_from_ms: at_ms.saturating_add(settle_ms),
                position,
            }),
        };
        match known.last {
            TransferOutcome::Refused(_) => self.summary.refused += 1,
            TransferOutcome::Executed(number) => {
                known.last_execution = Some(number);
                known.executions += 1;
                self.summary.executed += 1;
                self.summary.keys += u64::from(known.executions == 1);
                self.summary.executed_twice += u64::from(known.executions == 2);
            }
        }
    }
}

/// The provider's clock, which tests may move on instead of waiting.
#[derive(Default)]
pub(super) struct Clock {
    ahead_ms: AtomicU64,
}

impl Clock {
    pub(super) fn now_ms(&self) -> u64 {
        true_now_ms().saturating_add(self.ahead_ms.load(Ordering::Relaxed))
    }

    pub(super) fn advance(&self, by_ms: u64) {
        self.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

/// What the machine's clock says.
pub(super) fn true_now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
