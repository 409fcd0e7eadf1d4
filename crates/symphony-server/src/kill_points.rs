//! For chaos tests: `SYMPHONY_KILL_AT=after_send:3` kills this process with SIGKILL when it passes the named point
//! for the third time. Unset, it costs nothing; nobody sets it by accident.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use symphony::engine::{Point, Points};

use crate::output::Failure;

const VARIABLE: &str = "SYMPHONY_KILL_AT";

/// What the environment asks for.
pub fn from_environment() -> Result<Points, Failure> {
    let Ok(text) = std::env::var(VARIABLE) else { return Ok(Points::default()) };
    let (point, passes) = parse(&text).ok_or_else(|| {
        let names: Vec<_> = Point::ALL.iter().map(|point| point.name()).collect();
        Failure::new(format!(
            "{VARIABLE} must be POINT:PASSES, with POINT one of {}",
            names.join(", ")
        ))
    })?;
    tracing::warn!(point = point.name(), "this process will kill itself, as {VARIABLE} asks");
    let left = AtomicU64::new(passes);
    Ok(Points::new(move |reached| {
        if reached == point && left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Nothing after this line runs: no destructor, no commit, no goodbye.
            let killed = kill_process(getpid(), Signal::KILL);
            tracing::error!(error = ?killed, "this process could not kill itself");
        }
    }))
}

fn parse(text: &str) -> Option<(Point, u64)> {
    let (name, passes) = text.split_once(':')?;
    let point = Point::ALL.into_iter().find(|point| point.name() == name)?;
    Some((point, passes.parse().ok().filter(|passes| *passes > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_and_a_count_are_read_and_nothing_else() {
        assert_eq!(parse("after_send:3"), Some((Point::AfterSend, 3)));
        for bad in ["", "after_send", "after_send:0", "after_send:x", "elsewhere:1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
