//! How a consumer paces itself.

use std::time::Duration;

use super::retention::INBOX_RETENTION_DAYS_MIN;
use crate::FieldError;

/// How a consumer paces itself. The defaults suit a handler that takes well under a second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSettings {
    /// At most this many events at once; those of one key never.
    pub concurrency: usize,
    /// After this many failed tries a message is dead-lettered. While what it is applied to is away, none is counted.
    pub receives_max: u32,
    /// How long one event may take, COMMIT not counted; then it is rolled back and has failed.
    pub handler_timeout: Duration,
    /// How long a message rests in hand after its first failed try. Four times as long after each further one...
    pub retry_delay: Duration,
    /// ...up to this, which also bounds what is kept to of a Retry-After. Later messages of the same key wait as well.
    pub retry_delay_max: Duration,
    /// How long what is in flight may take once it shall stop.
    pub shutdown: Duration,
    /// How long the inbox remembers; at least 15 days, longer than any bus can repeat a message.
    pub inbox_retention_days: u32,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            concurrency: 10,
            receives_max: 10,
            handler_timeout: Duration::from_secs(30),
            retry_delay: Duration::from_secs(1),
            retry_delay_max: Duration::from_mins(10),
            shutdown: Duration::from_secs(25),
            inbox_retention_days: 30,
        }
    }
}

impl ConsumerSettings {
    /// The setting and the fix: the first of [`defects`](Self::defects).
    ///
    /// # Errors
    /// One of the settings cannot be used.
    pub fn check(&self) -> Result<(), FieldError> {
        self.defects().into_iter().next().map_or(Ok(()), Err)
    }

    /// Everything that is wrong: the setting, and what would be right.
    pub fn defects(&self) -> Vec<FieldError> {
        let mut found = Vec::new();
        if !(1..=1_000).contains(&self.concurrency) {
            found.push(FieldError::new(
                "concurrency",
                format!("is {}: it must be between 1 and 1000", self.concurrency),
            ));
        }
        if !(1..=1_000).contains(&self.receives_max) {
            found.push(FieldError::new(
                "receives_max",
                format!("is {}: it must be between 1 and 1000", self.receives_max),
            ));
        }
        if !(Duration::from_millis(1)..=Duration::from_hours(11)).contains(&self.handler_timeout) {
            let problem = "must be between 1 ms and 11 hours: SQS hides a message for at most 12";
            found.push(FieldError::new("handler_timeout_ms", problem));
        }
        if self.retry_delay_max < self.retry_delay {
            let problem = "must not be shorter than retry_delay_ms, which it limits";
            found.push(FieldError::new("retry_delay_max_ms", problem));
        }
        if self.inbox_retention_days < INBOX_RETENTION_DAYS_MIN {
            found.push(FieldError::new(
                "inbox_retention_days",
                format!(
                    "is {}: it must be at least {INBOX_RETENTION_DAYS_MIN}, because SQS keeps a message for 14 days",
                    self.inbox_retention_days
                ),
            ));
        }
        found
    }

    /// How long a message rests after this many tries.
    pub(super) fn delay_after(&self, tries: u32) -> Duration {
        let factor = 4_u32.saturating_pow(tries.saturating_sub(1).min(12));
        self.retry_delay.saturating_mul(factor).min(self.retry_delay_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_fourfold_up_to_the_maximum() {
        let settings = ConsumerSettings::default();
        let seconds: Vec<_> = (1..=7).map(|tries| settings.delay_after(tries).as_secs()).collect();
        assert_eq!(seconds, [1, 4, 16, 64, 256, 600, 600]);
        assert_eq!(settings.delay_after(u32::MAX).as_secs(), 600);
    }

    #[test]
    fn the_defaults_are_valid_and_a_short_retention_is_refused() {
        assert_eq!(ConsumerSettings::default().check(), Ok(()));
        let short = ConsumerSettings { inbox_retention_days: 14, ..ConsumerSettings::default() };
        assert!(
            short
                .check()
                .is_err_and(|error| error.to_string().contains("inbox_retention_days is 14"))
        );
        let none = ConsumerSettings { concurrency: 0, ..ConsumerSettings::default() };
        assert!(none.check().is_err_and(|error| error.to_string().contains("concurrency")));
    }
}
