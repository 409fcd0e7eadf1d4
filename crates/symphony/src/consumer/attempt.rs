//! One try of one message: apply it and acknowledge, give it back, or dead-letter it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::FutureExt as _;

use super::held::Held;
use super::{
    Applied, Apply, ApplyError, ConsumerMetrics, ConsumerSettings, DeadLetterReason, DeadLettered,
    Delivery, ReasonCode, Received, Source,
};
use crate::event::Event;

/// An acknowledgement is tried this often. If all fail the message comes again, and the inbox knows it.
const ACKNOWLEDGE_TRIES: u32 = 3;

/// A message in hand, and what it says.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) delivery: Arc<Delivery>,
    pub(super) event: Arc<Result<Event, String>>,
}

/// How a try ended.
pub(super) enum Verdict {
    /// Acknowledged or dead-lettered.
    Ended,
    /// Given back, to come again after this delay.
    Left { delay: Duration, unavailable: bool },
}

impl Work {
    /// What a message says, if it is an event.
    pub(super) fn new(delivery: Arc<Delivery>) -> Self {
        let event = Arc::new(read(&delivery));
        Self { delivery, event }
    }

    /// What order is kept within.
    pub(super) fn group(&self) -> String {
        let key = || self.event.as_ref().as_ref().ok().map(|event| event.key().to_owned());
        // No group and no event: it stands for itself.
        let itself = || format!("message {}", self.delivery.message_id);
        self.delivery.group.clone().or_else(key).unwrap_or_else(itself)
    }
}

fn read(delivery: &Delivery) -> Result<Event, String> {
    let text = std::str::from_utf8(&delivery.body).map_err(|_| "event is not UTF-8".to_owned())?;
    Event::parse(text).map_err(|defect| defect.to_string())
}

/// One try of one message.
pub(super) struct Attempt {
    pub(super) source: Arc<dyn Source>,
    pub(super) apply: Arc<dyn Apply>,
    pub(super) settings: ConsumerSettings,
    pub(super) metrics: Arc<ConsumerMetrics>,
    pub(super) held: Held,
    /// Which try this is, from 1.
    pub(super) tries: u32,
}

impl Attempt {
    pub(super) async fn carry_out(&self, work: &Work) -> Verdict {
        let delivery = &work.delivery;
        let event = match work.event.as_ref() {
            Ok(event) => event,
            Err(defect) => {
                return self.dead_letter(delivery, ReasonCode::Poison, defect.clone()).await;
            }
        };
        if self.tries > self.settings.receives_max {
            // Its last try ended without anybody seeing how: a killed process, most likely.
            let message = format!(
                "delivered {} times, and no try was seen to end",
                self.settings.receives_max
            );
            return self.dead_letter(delivery, ReasonCode::Exhausted, message).await;
        }
        let received = Received {
            event: event.clone(),
            position: delivery.position,
            receives: delivery.receives,
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
                self.metrics.lag_seconds.set(age_seconds(event.occurred_at()));
                self.acknowledge(delivery).await;
                Verdict::Ended
            }
            Err(ApplyError::Reject(message)) => {
                self.dead_letter(delivery, ReasonCode::Rejected, message).await
            }
            Err(ApplyError::Again(message)) if self.tries >= self.settings.receives_max => {
                self.dead_letter(delivery, ReasonCode::Exhausted, message).await
            }
            Err(ApplyError::Again(error)) => {
                self.metrics.failed_tries.add(1);
                tracing::warn!(%event_id, tries = self.tries, %error, "not applied: left to redelivery");
                self.leave(delivery, self.settings.delay_after(self.tries), false).await
            }
            Err(ApplyError::Unavailable(error)) => {
                tracing::warn!(%event_id, %error, "what events are applied to is away: receiving rests");
                self.leave(delivery, self.settings.retry_delay, true).await
            }
        }
    }

    async fn acknowledge(&self, delivery: &Arc<Delivery>) {
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

    async fn leave(&self, delivery: &Arc<Delivery>, delay: Duration, unavailable: bool) -> Verdict {
        // First, so that it is not hidden again.
        self.held.remove(delivery, &self.metrics);
        if let Err(error) = self.source.leave(delivery, delay).await {
            self.metrics.bus_errors.add(1);
            tracing::debug!(%error, "not given back: it comes again by itself");
        }
        Verdict::Left { delay, unavailable }
    }

    async fn dead_letter(
        &self,
        delivery: &Arc<Delivery>,
        code: ReasonCode,
        message: String,
    ) -> Verdict {
        let reason = DeadLetterReason { code, message };
        match self.source.dead_letter(delivery, &reason).await {
            Ok(DeadLettered::Moved) => {
                self.metrics.count_dead_letter(code);
                tracing::error!(code = code.as_str(), error = reason.message, "dead-lettered");
                self.held.remove(delivery, &self.metrics);
                Verdict::Ended
            }
            Ok(DeadLettered::LeftToBroker) => {
                let last = self.source.terms().broker_receives_max;
                if last.is_some_and(|last| delivery.receives >= last) {
                    self.metrics.count_dead_letter(code);
                    tracing::error!(
                        code = code.as_str(),
                        error = reason.message,
                        "dead-lettered by the broker next"
                    );
                }
                self.leave(delivery, self.settings.retry_delay, false).await
            }
            Err(error) => {
                self.metrics.bus_errors.add(1);
                tracing::error!(code = code.as_str(), %error, "not dead-lettered: it comes again");
                self.leave(delivery, self.settings.retry_delay_max, false).await
            }
        }
    }
}

fn age_seconds(occurred_at: &str) -> u64 {
    DateTime::parse_from_rfc3339(occurred_at)
        .ok()
        .and_then(|at| u64::try_from((Utc::now() - at.with_timezone(&Utc)).num_seconds()).ok())
        .unwrap_or(0)
}
