//! The messages in hand, and keeping them hidden from others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::attempt::Work;
use super::{ConsumerMetrics, Delivery, Source};

/// The messages in hand, which must stay hidden from others.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<Mutex<HashMap<String, Arc<Delivery>>>>);

impl Held {
    pub(super) fn insert(&self, work: &Work, metrics: &ConsumerMetrics) {
        let receipt = work.delivery.receipt.clone();
        if let Some(occurred_at) = work.occurred_at() {
            metrics.lag.take(&receipt, occurred_at);
        }
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(receipt, work.delivery.clone());
        metrics.held.set(held.len() as u64);
    }

    pub(super) fn remove(&self, delivery: &Delivery, metrics: &ConsumerMetrics) {
        metrics.lag.end(&delivery.receipt);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&delivery.receipt);
        metrics.held.set(held.len() as u64);
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn all(&self) -> Vec<Arc<Delivery>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Extend what is in hand, a third of the time before it would be seen by others.
pub(super) async fn keep_hidden(
    source: Arc<dyn Source>,
    held: Held,
    metrics: Arc<ConsumerMetrics>,
) {
    let pause = (source.terms().visibility / 3).max(Duration::from_millis(10));
    let mut tick = tokio::time::interval(pause);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let deliveries = held.all();
        if !deliveries.is_empty()
            && let Err(error) = source.extend(&deliveries).await
        {
            metrics.bus_errors.add(1);
            tracing::warn!(%error, "not all messages in hand could be kept hidden: some may be delivered twice");
        }
    }
}
