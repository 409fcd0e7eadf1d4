//! A database that is away is waited for. One that refuses every call for too long ends the worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::watch;

use super::{Lane, Shared, Stage, raise};
use crate::db::DbError;

/// How a task ends the whole engine for a reason that a person must hear.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) stage: watch::Sender<Stage>,
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) why: Arc<OnceLock<String>>,
}

impl<L: Lane> Shared<L> {
    /// Every answer since then was this refusal. After too long the worker ends, because a supervisor notices a process that
    /// ends, and not one that only waits. Answers whether it ends.
    pub(super) fn end_if_refused_for_long(
        &self,
        what: &str,
        since: Instant,
        error: &DbError,
    ) -> bool {
        if since.elapsed() < self.settings.refused_max {
            return false;
        }
        let lane = self.lane.name();
        let why = format!(
            "the database has refused every {what} of the {lane} lane for {} s: {error}",
            since.elapsed().as_secs()
        );
        self.end.stopping.store(true, Ordering::Release);
        tracing::error!(lane, code = error.code(), event = "ENGINE_BROKEN", "{why}");
        drop(self.end.why.set(why));
        raise(&self.end.stage, Stage::Broken);
        true
    }
}

/// Since when a call has got nothing but refusals.
#[derive(Debug, Default)]
pub(super) struct RefusedSince(Option<Instant>);

impl RefusedSince {
    /// A call succeeded, or the database was away.
    pub(super) fn ended(&mut self) {
        self.0 = None;
    }

    /// It failed: answers since when it is refused, if this was a refusal. An outage ends the series.
    pub(super) fn failed(&mut self, error: &DbError, now: Instant) -> Option<Instant> {
        self.0 = if error.is_refusal() { self.0.or(Some(now)) } else { None };
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_an_unbroken_series_of_refusals_counts_and_an_outage_is_none() {
        let text = String::new;
        let refused = || DbError::MissingPrivilege { message: text() };
        let aborted = DbError::Refused { sqlstate: "25P02".into(), message: text() };
        let away = DbError::Unreachable { message: text() };
        let standby = DbError::Refused { sqlstate: "25006".into(), message: text() };
        let elsewhere = DbError::OtherServer { message: text() };
        let first = Instant::now();
        let later = first + Duration::from_secs(40);
        for interruption in [away, standby, elsewhere] {
            let mut since = RefusedSince::default();
            assert_eq!(since.failed(&refused(), first), Some(first));
            assert_eq!(since.failed(&aborted, later), Some(first), "whatever the refusal says");
            assert_eq!(since.failed(&interruption, later), None, "{interruption:?} is waited for");
            assert_eq!(since.failed(&refused(), later), Some(later), "and ends the series");
            since.ended();
            assert_eq!(since.failed(&aborted, later), Some(later));
        }
    }
}
