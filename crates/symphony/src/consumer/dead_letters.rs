//! Noticing dead letters that somebody else has made: the broker itself, or SNS, which cannot be asked why.

use std::sync::Arc;
use std::time::Duration;

use super::{ConsumerMetrics, Source};

/// Count what waits among the dead letters, again and again, until it is dropped. [`run`](super::run) does.
pub async fn watch_dead_letters(
    source: Arc<dyn Source>,
    metrics: Arc<ConsumerMetrics>,
    pause: Duration,
) {
    let mut before = None;
    loop {
        let ours = metrics.dead_letters_ours();
        match source.dead_letters_waiting().await {
            Ok(Some(waiting)) => {
                metrics.dead_letters_waiting.set(Some(waiting));
                let others = before.map_or(0, |(waited, had): (u64, u64)| {
                    waiting.saturating_sub(waited.saturating_add(ours.saturating_sub(had)))
                });
                if others > 0 {
                    metrics.dead_letters_broker.add(usize::try_from(others).unwrap_or(usize::MAX));
                    tracing::error!(
                        found = others,
                        "dead-lettered, and not by this process: look at them, their keys go on without them"
                    );
                }
                before = Some((waiting, ours));
            }
            // Asked again: a grant may come later.
            Ok(None) => metrics.dead_letters_waiting.set(None),
            Err(error) => {
                metrics.dead_letters_waiting.set(None);
                tracing::debug!(%error, "the dead letters could not be counted");
            }
        }
        tokio::time::sleep(pause).await;
    }
}
