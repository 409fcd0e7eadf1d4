//! A rail with its bounds, as the lane is given it.

use std::fmt;
use std::sync::Arc;

use super::rail::Rail;
use crate::engine::{
    BreakerSettings, Destination, DestinationKind, DestinationLimits, Group, Rate,
};

/// A rail with its bounds.
pub struct RailSetup {
    /// Its name, as payments carry it.
    pub name: String,
    /// The rail.
    pub rail: Arc<dyn Rail>,
    /// What its name stood for before: asked what became of payments sent there, never sent to.
    pub previous: Vec<Arc<dyn Rail>>,
    /// At most this many calls at once.
    pub concurrency_max: usize,
    /// Calls per second, inquiries included.
    pub rate: Option<Rate>,
    /// When to leave it alone.
    pub breaker: BreakerSettings,
}

impl RailSetup {
    /// The earlier rail with this endpoint.
    pub(super) fn previous_at(&self, fingerprint: &str) -> Option<&dyn Rail> {
        let found =
            self.previous.iter().find(|rail| rail.terms().endpoint.fingerprint() == fingerprint);
        found.map(AsRef::as_ref)
    }

    /// Its bounds, as the engine takes them.
    pub fn group(&self) -> Group {
        Group {
            name: self.name.clone(),
            section: format!("rails.{}", self.name),
            call_limit: self.rail.terms().timeout,
            limits: self.limits(),
        }
    }

    fn limits(&self) -> DestinationLimits {
        DestinationLimits {
            concurrency_max: self.concurrency_max,
            rate: self.rate,
            breaker: self.breaker,
        }
    }

    pub(super) fn destination(&self) -> Arc<Destination> {
        Arc::new(Destination::new(DestinationKind::Rail, &self.name, self.limits()))
    }
}

impl fmt::Debug for RailSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RailSetup").field("name", &self.name).finish_non_exhaustive()
    }
}
