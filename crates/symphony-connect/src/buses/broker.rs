//! What the buses with a broker (SNS, NATS, Kafka) share.

use std::time::Duration;
use symphony::FieldErrors;

use crate::bounds::brokers::CALL_MS_MAX;
use crate::settings::Defects;

/// A broker's own words, short enough for a ledger and on one line.
pub(crate) fn short_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}

/// The limits on connecting and on a whole call, connecting included.
pub(crate) fn limits(
    connect_timeout_ms: u64,
    timeout_ms: u64,
) -> Result<(Duration, Duration), FieldErrors> {
    let mut defects = Defects::default();
    defects.within("connect_timeout_ms", connect_timeout_ms, 10, CALL_MS_MAX);
    defects.within("timeout_ms", timeout_ms, 10, CALL_MS_MAX);
    if connect_timeout_ms > timeout_ms {
        let problem = "must not be longer than timeout_ms, which includes it";
        defects.add("connect_timeout_ms", problem);
    }
    defects.into_result()?;
    Ok((Duration::from_millis(connect_timeout_ms), Duration::from_millis(timeout_ms)))
}
