//! `[consumer]`: how consumers of events pace themselves.

use std::time::Duration;

use serde::Deserialize;
use symphony::consumer::ConsumerSettings;

use super::defects::Defects;
use crate::bounds::VISIBILITY_SECONDS_MAX;
use crate::output::Failure;

/// `[consumer]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerSection {
    concurrency: usize,
    receives_max: u32,
    handler_timeout_ms: u64,
    visibility_seconds: u64,
    retry_delay_ms: u64,
    retry_delay_max_ms: u64,
    shutdown_seconds: u64,
    inbox_retention_days: u32,
}

impl ConsumerSection {
    /// As the loop takes them, if they are right.
    pub fn settings(&self) -> Result<ConsumerSettings, Failure> {
        let mut defects = Defects::default();
        let settings = self.check(&mut defects);
        if defects.is_empty() { Ok(settings) } else { Err(Failure::from(defects)) }
    }

    /// As the loop takes them; notes what is wrong.
    pub(super) fn check(&self, defects: &mut Defects) -> ConsumerSettings {
        let settings = ConsumerSettings {
            concurrency: self.concurrency,
            receives_max: self.receives_max,
            handler_timeout: Duration::from_millis(self.handler_timeout_ms),
            retry_delay: Duration::from_millis(self.retry_delay_ms),
            retry_delay_max: Duration::from_millis(self.retry_delay_max_ms),
            shutdown: Duration::from_secs(self.shutdown_seconds),
            inbox_retention_days: self.inbox_retention_days,
        };
        defects.note_all("consumer", settings.defects());
        if !(1..=VISIBILITY_SECONDS_MAX).contains(&self.visibility_seconds) {
            let problem =
                format!("must be 1 to {VISIBILITY_SECONDS_MAX}: SQS hides a message no longer");
            defects.add("consumer.visibility_seconds", problem);
        }
        settings
    }

    /// How long the queue hides a message between two extensions.
    pub fn visibility(&self) -> Duration {
        Duration::from_secs(self.visibility_seconds)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn the_documented_defaults_are_the_loops_own_and_a_short_retention_is_refused() {
        let mut config = Config::from_text("").unwrap();
        assert_eq!(config.consumer.settings().unwrap(), ConsumerSettings::default());
        config.consumer.inbox_retention_days = 14;
        let line = config.consumer.settings().unwrap_err().to_string();
        assert!(line.starts_with("consumer.inbox_retention_days is 14"), "{line}");
    }
}
