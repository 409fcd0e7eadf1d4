//! How a worker paces itself, and which settings contradict each other.

use std::time::Duration;

use crate::FieldError;
use crate::domain::limits;

/// How the engine works one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSettings {
    /// How long a claim holds an item between two renewals.
    pub lease: Duration,
    /// Kept free at the end of a lease: an item is not sent unless its call's time limit and this fit before it.
    pub lease_margin: Duration,
    /// At most this many in one claim and one completion.
    pub batch_items_max: usize,
    /// At most this many items held by the process at once, over all groups.
    pub held_items_max: usize,
    /// The pause between two polls lies between these.
    pub poll: (Duration, Duration),
    /// The pause between two repairs lies between these.
    pub repair: (Duration, Duration),
    /// How long a completion may wait for others to make a batch, while dispatches are running.
    pub gather: Duration,
    /// How long what is in flight may take to end after a stop was asked for.
    pub shutdown: Duration,
    /// How long the database may answer every claim, or every write of outcomes, with a refusal before the worker
    /// ends. A database that is away is waited for without end.
    pub refused_max: Duration,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_mins(1),
            lease_margin: Duration::from_secs(5),
            batch_items_max: 1_000,
            held_items_max: 4_000,
            poll: (Duration::from_millis(250), Duration::from_secs(1)),
            repair: (Duration::from_secs(2), Duration::from_secs(4)),
            gather: Duration::from_millis(1),
            shutdown: Duration::from_secs(25),
            refused_max: Duration::from_mins(1),
        }
    }
}

/// What is claimed on its own: one destination of a lane, or the whole lane, with its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name, as items carry it.
    pub name: String,
    /// Its section in the configuration, for whoever must change it, such as `rails.sepa`.
    pub section: String,
    /// The longest one call may take: it must fit into a lease.
    pub call_limit: Duration,
    /// What it takes.
    pub limits: super::gate::DestinationLimits,
}

impl Group {
    /// Calls under way plus items waiting for their turn: claimed ahead, so that calls need not wait for claims.
    pub(crate) fn held_items_max(&self) -> usize {
        self.limits.concurrency_max.saturating_mul(2)
    }

    /// What is wrong with its own bounds: the setting, and what would be right.
    fn defects(&self) -> Vec<FieldError> {
        let mut found = Vec::new();
        if self.limits.concurrency_max == 0 {
            found.push(FieldError::new("concurrency_max", "must be at least 1"));
        }
        if let Some(rate) = self.limits.rate {
            if rate.per_second == 0 {
                let problem = "is 0, and nothing would ever be sent: use at least 1, leave it out for no limit, or stop it \
                               with `symphony pause`";
                found.push(FieldError::new("rate_per_second", problem));
            }
            if rate.burst == 0 {
                found.push(FieldError::new("rate_burst", "must be at least 1"));
            }
        }
        found.extend(self.limits.breaker.defects());
        found
    }
}

impl super::gate::BreakerSettings {
    /// What is wrong with them: the setting, and what would be right.
    pub fn defects(&self) -> Vec<FieldError> {
        let mut found = Vec::new();
        if self.failures_to_open == 0 {
            found.push(FieldError::new("breaker_failures", "must be at least 1"));
        }
        if self.open_for.is_zero() {
            found.push(FieldError::new("breaker_open_ms", "must be at least 1"));
        }
        if self.open_for_max < self.open_for {
            let problem = "must not be shorter than breaker_open_ms, which it limits";
            found.push(FieldError::new("breaker_open_max_ms", problem));
        }
        found
    }
}

/// Refuse settings that contradict each other, before anything is claimed: the first of [`contradictions`].
pub fn check(settings: &EngineSettings, groups: &[Group]) -> Result<(), FieldError> {
    contradictions(settings, groups).into_iter().next().map_or(Ok(()), Err)
}

/// Every contradiction between the settings.
pub fn contradictions(settings: &EngineSettings, groups: &[Group]) -> Vec<FieldError> {
    let mut found = Vec::new();
    let mut refuse = |field: &str, problem: String| found.push(FieldError::new(field, problem));
    let lease_seconds = settings.lease.as_secs();
    let lease_is_right = settings.lease.subsec_nanos() == 0
        && (1..=u64::from(limits::LEASE_SECONDS_MAX.unsigned_abs())).contains(&lease_seconds);
    if !lease_is_right {
        refuse(
            "worker.lease_seconds",
            format!("must be 1 to {} whole seconds", limits::LEASE_SECONDS_MAX),
        );
    }
    if !(1..=limits::BATCH_ITEMS_MAX).contains(&settings.batch_items_max) {
        refuse("worker.batch_items_max", format!("must be 1 to {}", limits::BATCH_ITEMS_MAX));
    }
    if settings.held_items_max == 0 {
        refuse("worker.held_items_max", "must be at least 1".to_owned());
    }
    for (field, (from, to)) in
        [("worker.poll_ms", settings.poll), ("worker.repair_ms", settings.repair)]
    {
        if from.is_zero() || to < from {
            refuse(field, "must be two lengths of time above 0, the shorter one first".to_owned());
        }
    }
    if settings.refused_max.is_zero() {
        let problem =
            "must be at least 1: a grant that is missing for a moment would end the worker";
        refuse("worker.refused_seconds_max", problem.to_owned());
    }
    for group in groups {
        for error in group.defects() {
            let error = error.within(&group.section);
            refuse(&error.field, error.problem);
        }
        // A lease is renewed when a third of it is gone: what is left then must still fit a call.
        let usable = settings.lease.saturating_sub(super::holds::renew_after(settings.lease));
        let needed = group.call_limit + settings.lease_margin;
        if lease_is_right && needed > usable {
            refuse(
                "worker.lease_seconds",
                format!(
                    "is {lease_seconds}, but a call of {} may take {} ms and {} ms of margin must stay: no item could \
                     ever be sent safely; use at least {} seconds, or a shorter timeout",
                    group.name,
                    group.call_limit.as_millis(),
                    settings.lease_margin.as_millis(),
                    (needed.as_secs() + 1).saturating_mul(3).div_ceil(2),
                ),
            );
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::gate::{BreakerSettings, DestinationLimits, Rate, RateScope};

    fn group(call_seconds: u64) -> Group {
        Group {
            name: "sepa".to_owned(),
            section: "rails.sepa".to_owned(),
            call_limit: Duration::from_secs(call_seconds),
            limits: DestinationLimits {
                concurrency_max: 10,
                rate: None,
                breaker: BreakerSettings::default(),
            },
        }
    }

    #[test]
    fn a_call_must_fit_into_what_a_renewed_lease_leaves() {
        for (lease, margin, call, allowed) in [
            (60, 5, 30, true),
            (60, 5, 35, true),
            (60, 5, 36, false),
            (30, 5, 30, false),
            (45, 0, 30, true),
            (44, 0, 30, false),
            (3600, 5, 2000, true),
        ] {
            let settings = EngineSettings {
                lease: Duration::from_secs(lease),
                lease_margin: Duration::from_secs(margin),
                ..EngineSettings::default()
            };
            let answer = check(&settings, &[group(call)]);
            assert_eq!(answer.is_ok(), allowed, "lease {lease}, margin {margin}, call {call}");
            if let Err(contradiction) = answer {
                assert!(contradiction.to_string().contains("use at least"), "{contradiction}");
            }
        }
    }

    #[test]
    fn nothing_may_be_zero_or_beyond_what_the_database_takes() {
        let good = EngineSettings::default();
        assert_eq!(check(&good, &[group(30)]), Ok(()));
        for (field, bad) in [
            ("worker.lease_seconds", EngineSettings { lease: Duration::ZERO, ..good.clone() }),
            (
                "worker.lease_seconds",
                EngineSettings { lease: Duration::from_secs(3601), ..good.clone() },
            ),
            ("worker.batch_items_max", EngineSettings { batch_items_max: 0, ..good.clone() }),
            ("worker.batch_items_max", EngineSettings { batch_items_max: 4097, ..good.clone() }),
            ("worker.held_items_max", EngineSettings { held_items_max: 0, ..good.clone() }),
            (
                "worker.poll_ms",
                EngineSettings {
                    poll: (Duration::from_secs(2), Duration::from_secs(1)),
                    ..good.clone()
                },
            ),
            (
                "worker.repair_ms",
                EngineSettings { repair: (Duration::ZERO, Duration::from_secs(1)), ..good.clone() },
            ),
        ] {
            assert_eq!(check(&bad, &[group(30)]).unwrap_err().field, field);
        }
        let mut none = group(30);
        none.limits.concurrency_max = 0;
        assert_eq!(check(&good, &[none]).unwrap_err().field, "rails.sepa.concurrency_max");
        let never = Rate { per_second: 0, burst: 0, scope: RateScope::Process };
        let mut wrong = group(36);
        wrong.limits.rate = Some(never);
        let found = contradictions(&EngineSettings { held_items_max: 0, ..good }, &[wrong]);
        let fields: Vec<_> = found.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "worker.held_items_max",
                "rails.sepa.rate_per_second",
                "rails.sepa.rate_burst",
                "worker.lease_seconds"
            ],
            "all at once"
        );
    }
}
