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
    let mut looks = Looks::default();
    loop {
        let ours = metrics.dead_letters_ours();
        match source.dead_letters_waiting().await {
            Ok(Some(waiting)) => {
                metrics.dead_letters_waiting.set(Some(waiting));
                let others = looks.look(waiting, ours);
                if others > 0 {
                    metrics.dead_letters_broker.add(usize::try_from(others).unwrap_or(usize::MAX));
                    tracing::error!(
                        found = others,
                        "dead-lettered, and not by this process: look at them, their keys go on without them"
                    );
                }
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

/// What the looks so far have told. A broker's count is approximate and late: what this process put there may be in it
/// at a later look, and what is in it once may be gone at the next. So what is ours explains what is found until it
/// was, and only what two looks in a row have found is reported.
#[derive(Debug, Default)]
struct Looks {
    /// How many waited at the last look, and how many this process had put there.
    last: Option<(u64, u64)>,
    /// Put there by this process and not found yet.
    not_found: u64,
    /// How many looks ago the last of those was put there.
    quiet_for: u32,
    /// Found once, and not by this process's doing.
    suspected: u64,
}

/// After so many looks what was put there is not expected any more: a person has taken it away before it was counted.
const EXPECTED_LOOKS: u32 = 10;

impl Looks {
    /// Answers how many somebody else has put there.
    fn look(&mut self, waiting: u64, ours: u64) -> u64 {
        let Some((waited, had)) = self.last.replace((waiting, ours)) else { return 0 };
        let put = ours.saturating_sub(had);
        self.quiet_for = if put > 0 { 0 } else { self.quiet_for.saturating_add(1) };
        if self.quiet_for >= EXPECTED_LOOKS {
            self.not_found = 0;
        }
        self.not_found = self.not_found.saturating_add(put);
        let suspected = self.unexplained(self.suspected);
        let others = suspected.saturating_sub(waited.saturating_sub(waiting));
        self.suspected = self.unexplained(waiting.saturating_sub(waited));
        others
    }

    /// How many of these this process has not put there.
    fn unexplained(&mut self, found: u64) -> u64 {
        let explained = found.min(self.not_found);
        self.not_found -= explained;
        found - explained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_persists_and_is_not_ours_is_reported() {
        //  (waiting, ours) at each look, what is reported then
        for (case, looks) in [
            ("there before us", vec![((7, 0), 0), ((7, 0), 0), ((7, 0), 0)]),
            ("ours, counted at once", vec![((0, 0), 0), ((1, 1), 0), ((1, 1), 0), ((1, 1), 0)]),
            (
                "ours, counted late",
                vec![((0, 0), 0), ((0, 1), 0), ((0, 1), 0), ((1, 1), 0), ((1, 1), 0)],
            ),
            ("ours, counted early", vec![((0, 0), 0), ((1, 0), 0), ((1, 1), 0), ((1, 1), 0)]),
            ("another's", vec![((0, 0), 0), ((2, 0), 0), ((2, 0), 2), ((2, 0), 0)]),
            ("a count that wavers", vec![((5, 0), 0), ((6, 0), 0), ((5, 0), 0), ((5, 0), 0)]),
            (
                "ours and another's",
                vec![((0, 0), 0), ((1, 2), 0), ((3, 2), 0), ((3, 2), 1), ((3, 2), 0)],
            ),
            ("taken away by a person", vec![((3, 0), 0), ((0, 0), 0), ((1, 0), 0), ((1, 0), 1)]),
        ] {
            let mut state = Looks::default();
            for (at, ((waiting, ours), reported)) in looks.into_iter().enumerate() {
                assert_eq!(state.look(waiting, ours), reported, "{case}, look {at}");
            }
        }
    }

    #[test]
    fn what_was_never_counted_hides_others_only_for_a_while() {
        let mut state = Looks::default();
        assert_eq!((state.look(0, 0), state.look(0, 1)), (0, 0));
        for _ in 0..EXPECTED_LOOKS {
            assert_eq!(state.look(0, 1), 0);
        }
        assert_eq!((state.look(1, 1), state.look(1, 1)), (0, 1));
    }
}
