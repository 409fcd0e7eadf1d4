//! Stop sending to a destination that is in trouble.

use std::time::{Duration, Instant};

use super::later;

/// This many troubles in a row also stop the flow of a destination with few calls, …
const LASTING_TROUBLES: u32 = 3;
/// … once the first of them is this long ago. Otherwise only the items' own growing pauses would slow the tries.
const LASTING: Duration = Duration::from_secs(3);

/// When a [`Breaker`] stops the flow, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// This many troubles in a row stop the flow; 0 counts as 1.
    pub failures_to_open: u32,
    /// How long nothing is sent then.
    pub open_for: Duration,
    /// A probe in trouble doubles that, up to this.
    pub open_for_max: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures_to_open: 10,
            open_for: Duration::from_secs(1),
            open_for_max: Duration::from_secs(5),
        }
    }
}

/// What a breaker lets through now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// As much as there is.
    Free,
    /// One item, to see how the destination is. Taken with this answer.
    Probe,
    /// Nothing.
    Nothing {
        /// Ask again then.
        until: Instant,
    },
}

impl Allowance {
    /// The most items that may be claimed.
    pub fn items_max(self) -> u32 {
        match self {
            Self::Free => u32::MAX,
            Self::Probe => 1,
            Self::Nothing { .. } => 0,
        }
    }
}

/// A breaker's state in the usual words, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Everything flows.
    Closed,
    /// Nothing is sent.
    Open,
    /// One item is out, to see how the destination is.
    HalfOpen,
}

impl BreakerState {
    /// As the database has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::Open => "OPEN",
            Self::HalfOpen => "HALF_OPEN",
        }
    }
}

/// What a report changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The destination is left alone from now on.
    Opened,
    /// Everything flows again.
    Closed,
}

/// Stops sending to a destination in trouble, and finds out by single probes when it is well again.
#[derive(Debug, Clone)]
pub struct Breaker {
    settings: BreakerSettings,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Everything flows; so many troubles in a row up to now, the first of them then.
    Flowing { troubles: u32, since: Option<Instant> },
    /// Nothing is sent until then.
    Resting { until: Instant, rest: Duration },
    /// One item is out. If nothing is heard of it until then (its lease was lost, it was never sent), another
    /// may go.
    Probing { until: Instant, rest: Duration },
}

const FLOWING: Phase = Phase::Flowing { troubles: 0, since: None };

impl Breaker {
    /// A breaker that lets everything flow.
    pub fn new(settings: BreakerSettings) -> Self {
        Self { settings, phase: FLOWING }
    }

    /// What may be claimed now. [`Allowance::Probe`] is given once: whoever gets it claims one item, or gives it
    /// back with [`probe_unused`](Self::probe_unused). So ask what else could forbid a claim first.
    pub fn allowance(&mut self, now: Instant) -> Allowance {
        match self.phase {
            Phase::Flowing { .. } => Allowance::Free,
            Phase::Resting { until, .. } | Phase::Probing { until, .. } if now < until => {
                Allowance::Nothing { until }
            }
            Phase::Resting { rest, .. } | Phase::Probing { rest, .. } => {
                self.phase = Phase::Probing { until: later(now, self.settings.open_for), rest };
                Allowance::Probe
            }
        }
    }

    /// There was nothing to probe with: the next item that comes may be the probe.
    pub fn probe_unused(&mut self, now: Instant) {
        if let Phase::Probing { rest, .. } = self.phase {
            self.phase = Phase::Resting { until: now, rest };
        }
    }

    /// A call ended; `trouble` says that the destination itself was the problem, not the item.
    ///
    /// While resting, answers to what was sent before change nothing: the probe decides. While probing, any
    /// answer counts as the probe's, because it tells of the destination at the same moment.
    pub fn report(&mut self, now: Instant, trouble: bool) -> Option<Change> {
        let before = self.state();
        let open_for = self.settings.open_for;
        self.phase = match (self.phase, trouble) {
            (resting @ Phase::Resting { .. }, _) => resting,
            (Phase::Flowing { .. } | Phase::Probing { .. }, false) => FLOWING,
            (Phase::Flowing { troubles, since }, true) => {
                let troubles = troubles.saturating_add(1);
                let since = since.unwrap_or(now);
                let lasts =
                    troubles >= LASTING_TROUBLES && now.saturating_duration_since(since) >= LASTING;
                if troubles < self.settings.failures_to_open && !lasts {
                    Phase::Flowing { troubles, since: Some(since) }
                } else {
                    Phase::Resting { until: later(now, open_for), rest: open_for }
                }
            }
            (Phase::Probing { rest, .. }, true) => {
                let longest = self.settings.open_for_max.max(open_for);
                let rest = rest.saturating_mul(2).min(longest);
                Phase::Resting { until: later(now, rest), rest }
            }
        };
        match (before, self.state()) {
            (BreakerState::Closed, BreakerState::Open) => Some(Change::Opened),
            (BreakerState::Open | BreakerState::HalfOpen, BreakerState::Closed) => {
                Some(Change::Closed)
            }
            _ => None,
        }
    }

    /// Let everything flow, whatever was reported so far: a person asks for it.
    pub fn reset(&mut self) -> Option<Change> {
        let closed = self.state() == BreakerState::Closed;
        self.phase = FLOWING;
        (!closed).then_some(Change::Closed)
    }

    /// When the next probe may go; `None` while everything flows.
    pub fn next_probe(&self) -> Option<Instant> {
        match self.phase {
            Phase::Flowing { .. } => None,
            Phase::Resting { until, .. } | Phase::Probing { until, .. } => Some(until),
        }
    }

    /// Where it stands, for metrics.
    pub fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Flowing { .. } => BreakerState::Closed,
            Phase::Resting { .. } => BreakerState::Open,
            Phase::Probing { .. } => BreakerState::HalfOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Act::{Ask, Fine, Trouble, Unused};
    use BreakerState::{Closed, HalfOpen, Open};

    #[derive(Debug, Clone, Copy)]
    enum Act {
        /// Ask for the allowance; what is expected, as items and when to ask again.
        Ask(u32, Option<u64>),
        Fine,
        Trouble,
        Unused,
    }

    /// Play a ledger of (at ms, act, state afterwards) against a breaker of 3 troubles, 1 s, at most 5 s.
    fn play(ledger: &[(u64, Act, BreakerState)]) {
        let start = Instant::now();
        let mut breaker = Breaker::new(BreakerSettings {
            failures_to_open: 3,
            open_for: Duration::from_secs(1),
            open_for_max: Duration::from_secs(5),
        });
        for line in ledger {
            let (at_ms, act, expected) = *line;
            let now = start + Duration::from_millis(at_ms);
            match act {
                Ask(items, until_ms) => {
                    let allowance = breaker.allowance(now);
                    let until = match allowance {
                        Allowance::Nothing { until } => Some(until),
                        Allowance::Free | Allowance::Probe => None,
                    };
                    assert_eq!(allowance.items_max(), items, "{line:?}");
                    let expected = until_ms.map(|until_ms| start + Duration::from_millis(until_ms));
                    assert_eq!(until, expected, "{line:?}");
                }
                Fine => {
                    let opened = breaker.report(now, false) == Some(Change::Opened);
                    assert!(!opened, "{line:?}");
                }
                Trouble => {
                    let before = breaker.state();
                    let change = breaker.report(now, true);
                    let opens = before == Closed && breaker.state() == Open;
                    assert_eq!(change, opens.then_some(Change::Opened), "{line:?}");
                }
                Unused => breaker.probe_unused(now),
            }
            assert_eq!(breaker.state(), expected, "{line:?}");
        }
    }

    const ALL: u32 = u32::MAX;

    #[test]
    fn only_troubles_in_a_row_stop_the_flow() {
        play(&[
            (0, Ask(ALL, None), Closed),
            (1, Trouble, Closed),
            (2, Trouble, Closed),
            (3, Fine, Closed),
            (4, Trouble, Closed),
            (5, Trouble, Closed),
            (6, Ask(ALL, None), Closed),
            (7, Trouble, Open),
            (8, Ask(0, Some(1_007)), Open),
        ]);
    }

    #[test]
    fn a_few_troubles_over_some_seconds_stop_the_flow_of_a_quiet_destination_too() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut breaker = Breaker::new(BreakerSettings::default());
        // One item, tried by its own pauses.
        assert_eq!(breaker.report(at(0), true), None);
        assert_eq!(breaker.report(at(1), true), None);
        assert_eq!(breaker.report(at(3), true), Some(Change::Opened));
        // Two troubles with a success between them are no lasting trouble, and neither are two alone.
        let mut breaker = Breaker::new(BreakerSettings::default());
        for (second, trouble) in [(0, true), (9, false), (10, true), (20, true)] {
            assert_eq!(breaker.report(at(second), trouble), None, "at {second} s");
        }
    }

    #[test]
    fn a_breaker_says_once_that_it_opened_and_once_that_it_closed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let settings = BreakerSettings { failures_to_open: 2, ..BreakerSettings::default() };
        let mut breaker = Breaker::new(settings);
        assert_eq!(breaker.report(at(0), true), None);
        assert_eq!(breaker.report(at(0), true), Some(Change::Opened));
        assert_eq!(breaker.report(at(0), true), None);
        assert_eq!(breaker.allowance(at(1)), Allowance::Probe);
        assert_eq!(breaker.report(at(1), true), None);
        assert_eq!(breaker.next_probe(), Some(at(3)));
        assert_eq!(breaker.allowance(at(3)), Allowance::Probe);
        assert_eq!(breaker.report(at(3), false), Some(Change::Closed));
        assert_eq!((breaker.report(at(3), false), breaker.reset()), (None, None));
        breaker.report(at(4), true);
        breaker.report(at(4), true);
        assert_eq!((breaker.reset(), breaker.reset()), (Some(Change::Closed), None));
        assert_eq!(breaker.allowance(at(4)), Allowance::Free);
    }

    #[test]
    fn one_probe_goes_after_the_rest_and_its_success_frees_the_flow() {
        play(&[
            (0, Trouble, Closed),
            (0, Trouble, Closed),
            (0, Trouble, Open),
            (999, Ask(0, Some(1_000)), Open),
            (1_000, Ask(1, None), HalfOpen),
            (1_000, Ask(0, Some(2_000)), HalfOpen),
            (1_500, Fine, Closed),
            (1_500, Ask(ALL, None), Closed),
            // The count starts anew.
            (1_600, Trouble, Closed),
            (1_600, Trouble, Closed),
            (1_600, Trouble, Open),
            (1_600, Ask(0, Some(2_600)), Open),
        ]);
    }

    #[test]
    fn a_probe_in_trouble_doubles_the_rest_up_to_the_longest_and_success_resets_it() {
        play(&[
            (0, Trouble, Closed),
            (0, Trouble, Closed),
            (0, Trouble, Open),
            (1_000, Ask(1, None), HalfOpen),
            (1_100, Trouble, Open),
            (1_100, Ask(0, Some(3_100)), Open),
            (3_100, Ask(1, None), HalfOpen),
            (3_200, Trouble, Open),
            (3_200, Ask(0, Some(7_200)), Open),
            (7_200, Ask(1, None), HalfOpen),
            (7_300, Trouble, Open),
            (7_300, Ask(0, Some(12_300)), Open),
            (12_300, Ask(1, None), HalfOpen),
            (12_300, Trouble, Open),
            (12_300, Ask(0, Some(17_300)), Open),
            (17_300, Ask(1, None), HalfOpen),
            (17_400, Fine, Closed),
            (17_500, Trouble, Closed),
            (17_500, Trouble, Closed),
            (17_500, Trouble, Open),
            (17_500, Ask(0, Some(18_500)), Open),
        ]);
    }

    #[test]
    fn a_probe_nobody_reports_does_not_wedge_it() {
        play(&[
            (0, Trouble, Closed),
            (0, Trouble, Closed),
            (0, Trouble, Open),
            (1_000, Ask(1, None), HalfOpen),
            (1_999, Ask(0, Some(2_000)), HalfOpen),
            (2_000, Ask(1, None), HalfOpen),
            (2_001, Ask(0, Some(3_000)), HalfOpen),
            (9_000, Ask(1, None), HalfOpen),
            (9_001, Trouble, Open),
            (9_001, Ask(0, Some(11_001)), Open),
        ]);
    }

    #[test]
    fn a_probe_that_found_nothing_to_send_can_be_taken_again_at_once() {
        play(&[
            (0, Unused, Closed),
            (0, Trouble, Closed),
            (0, Trouble, Closed),
            (0, Trouble, Open),
            (1, Unused, Open),
            (1, Ask(0, Some(1_000)), Open),
            (1_000, Ask(1, None), HalfOpen),
            (1_010, Unused, Open),
            (1_020, Ask(1, None), HalfOpen),
            (1_030, Trouble, Open),
            (1_030, Ask(0, Some(3_030)), Open),
        ]);
    }

    #[test]
    fn answers_to_what_was_sent_before_the_rest_change_nothing() {
        play(&[
            (0, Trouble, Closed),
            (0, Trouble, Closed),
            (0, Trouble, Open),
            (10, Trouble, Open),
            (20, Fine, Open),
            (30, Trouble, Open),
            (30, Ask(0, Some(1_000)), Open),
            (1_000, Ask(1, None), HalfOpen),
        ]);
    }

    #[test]
    fn settings_that_contradict_themselves_are_read_carefully() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut breaker = Breaker::new(BreakerSettings {
            failures_to_open: 0,
            open_for: second,
            open_for_max: Duration::ZERO,
        });
        breaker.report(now, true);
        assert_eq!(breaker.allowance(now), Allowance::Nothing { until: now + second });
        assert_eq!(breaker.allowance(now + second), Allowance::Probe);
        breaker.report(now + second, true);
        let until = now + second * 2;
        assert_eq!(breaker.allowance(now + second), Allowance::Nothing { until });

        let mut endless = Breaker::new(BreakerSettings {
            failures_to_open: 1,
            open_for: Duration::MAX,
            open_for_max: Duration::MAX,
        });
        endless.report(now, true);
        assert_eq!(endless.allowance(now).items_max(), 0);
    }
}
