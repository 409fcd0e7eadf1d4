//! One try of one message: apply it and acknowledge, or dead-letter it, or keep it in hand to be tried again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::FutureExt as _;

use super::held::Held;
use super::memory::Past;
use super::{
    Applied, Apply, ApplyError, ConsumerMetrics, ConsumerSettings, DeadLetterReason, Delivery,
    ReasonCode, Received, Source,
};
use crate::event::Event;

/// An acknowledgement is tried this often. If all fail the message comes again, and the inbox knows it.
const ACKNOWLEDGE_TRIES: u32 = 3;
/// What was delivered so often is dead-lettered, tried or not: most likely its handler kills the process. SQS counts no
/// further.
const RECEIVES_CEILING: u32 = 1_000;

/// A message in hand, and what it says.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) delivery: Arc<Delivery>,
    pub(super) event: Arc<Result<Event, String>>,
    pub(super) past: Past,
    /// It is to be dead-lettered, and could not be yet.
    pub(super) condemned: Option<DeadLetterReason>,
    pub(super) received_at: Instant,
}

/// How a try ended.
#[derive(Debug)]
pub(super) enum AttemptEnd {
    /// Acknowledged or dead-lettered.
    Ended,
    /// It failed, and is tried again after this delay.
    Failed { delay: Duration },
    /// What it is applied to is away, and may have said for how long.
    Unavailable { retry_after: Option<Duration> },
    /// It is a dead letter, and could not be put where they are.
    Stuck { reason: DeadLetterReason, delay: Duration },
}

impl Work {
    /// What a message says, if it is an event; with what is remembered of it.
    pub(super) fn new(delivery: Delivery, past: Past) -> Self {
        let event = Arc::new(read(&delivery));
        let past = Past { deliveries: past.deliveries.saturating_add(1), ..past };
        let delivery = Arc::new(delivery);
        Self { delivery, event, past, condemned: None, received_at: Instant::now() }
    }

    /// This is a newer delivery of the same message.
    pub(super) fn take_over(&mut self, older: &Self) {
        self.past.failed = self.past.failed.max(older.past.failed);
        self.past.deliveries = self.past.deliveries.saturating_add(older.past.deliveries);
        self.condemned = self.condemned.take().or_else(|| older.condemned.clone());
    }

    /// What order is kept within.
    pub(super) fn group(&self) -> String {
        let key = || self.event.as_ref().as_ref().ok().map(|event| event.key().to_owned());
        // No group and no event: it stands for itself.
        let itself = || format!("message {}", self.delivery.message_id);
        self.delivery.group.clone().or_else(key).unwrap_or_else(itself)
    }

    pub(super) fn occurred_at(&self) -> Option<DateTime<Utc>> {
        let event = self.event.as_ref().as_ref().ok()?;
        Some(DateTime::parse_from_rfc3339(event.occurred_at()).ok()?.with_timezone(&Utc))
    }
}

fn read(delivery: &Delivery) -> Result<Event, String> {
    if let Some(defect) = &delivery.defect {
        return Err(defect.to_string());
    }
    let text = std::str::from_utf8(&delivery.body).map_err(|_| "event is not UTF-8".to_owned())?;
    Event::parse(text).map_err(|defect| defect.to_string())
}

/// What every try needs.
#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) source: Arc<dyn Source>,
    pub(super) apply: Arc<dyn Apply>,
    pub(super) settings: ConsumerSettings,
    pub(super) metrics: Arc<ConsumerMetrics>,
    pub(super) held: Held,
}

impl Attempt {
    pub(super) async fn carry_out(&self, work: &Work) -> AttemptEnd {
        if let Some(reason) = &work.condemned {
            return self.dead_letter(work, reason.clone()).await;
        }
        let delivery = &work.delivery;
        let event = match work.event.as_ref() {
            Ok(event) => event,
            Err(defect) => return self.condemn(work, ReasonCode::Poison, defect.clone()).await,
        };
        let ceiling = self.source.terms().broker_receives_max.unwrap_or(RECEIVES_CEILING);
        let unseen = delivery.receives.saturating_sub(work.past.deliveries);
        if unseen >= ceiling.min(RECEIVES_CEILING).saturating_sub(1) {
            let message =
                format!("delivered {} times, and no try was seen to end", delivery.receives);
            return self.condemn(work, ReasonCode::Exhausted, message).await;
        }
        let received = Received {
            event: event.clone(),
            position: delivery.position,
            receives: delivery.receives.saturating_add(work.past.failed),
        };
        let started = Instant::now();
        let result = AssertUnwindSafe(self.apply.apply(&received)).catch_unwind().await;
        self.metrics.handler_latency.observe(started.elapsed());
        let event_id = event.event_id();
        match result.unwrap_or_else(|_| Err(ApplyError::Again("the handler panicked".to_owned()))) {
            Ok(applied) => {
                match applied {
                    Applied::Now => self.metrics.applied.add(1),
                    Applied::Before => self.metrics.duplicates.add(1),
                }
                self.acknowledge(delivery).await;
                AttemptEnd::Ended
            }
            Err(ApplyError::Reject(message)) => {
                self.condemn(work, ReasonCode::Rejected, message).await
            }
            Err(ApplyError::Again(error)) => {
                let most = self.settings.receives_max;
                let tries = work.past.failed.saturating_add(1);
                if tries >= most {
                    return self.condemn(work, ReasonCode::Exhausted, error).await;
                }
                self.metrics.failed_tries.add(1);
                let delay = self.settings.delay_after(work.past.failed.saturating_add(1));
                let trace_id = event.trace_id();
                tracing::warn!(%event_id, %trace_id, tries, %error, "not applied: tried again, later events of its key wait");
                AttemptEnd::Failed { delay }
            }
            Err(ApplyError::Unavailable { message: error, retry_after }) => {
                tracing::debug!(%event_id, %error, "not applied: what events are applied to is away");
                AttemptEnd::Unavailable { retry_after }
            }
        }
    }

    pub(super) async fn acknowledge(&self, delivery: &Arc<Delivery>) {
        for tried in 1..=ACKNOWLEDGE_TRIES {
            match self.source.acknowledge(delivery).await {
                Ok(()) => break,
                Err(error) => {
                    self.metrics.bus_errors.add(1);
                    if tried == ACKNOWLEDGE_TRIES {
                        tracing::warn!(%error, "applied but not acknowledged: it comes again, and the inbox knows it");
                    }
                }
            }
        }
        self.held.remove(delivery, &self.metrics);
    }

    async fn condemn(&self, work: &Work, code: ReasonCode, message: String) -> AttemptEnd {
        self.dead_letter(work, DeadLetterReason { code, message }).await
    }

    async fn dead_letter(&self, work: &Work, reason: DeadLetterReason) -> AttemptEnd {
        let code = reason.code.as_str();
        let event = work.event.as_ref().as_ref().ok();
        let event_id = event.map(|event| event.event_id().to_string());
        let trace_id = event.map(|event| event.trace_id().to_string());
        match self.source.dead_letter(&work.delivery, &reason).await {
            Ok(()) => {
                self.metrics.count_dead_letter(reason.code);
                tracing::error!(code, event_id, trace_id, error = reason.message, "dead-lettered");
                self.held.remove(&work.delivery, &self.metrics);
                AttemptEnd::Ended
            }
            Err(error) => {
                self.metrics.bus_errors.add(1);
                tracing::error!(code, event_id, trace_id, %error, "not dead-lettered: tried again, later events of its key wait");
                let delay = self.settings.delay_after(work.past.failed.saturating_add(1));
                AttemptEnd::Stuck { reason, delay }
            }
        }
    }
}
