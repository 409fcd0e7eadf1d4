//! What one process remembers between two deliveries of a message. Nothing here is needed for effects to happen once;
//! it keeps order where the broker does not, and tells tries from deliveries.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// At most this many messages are remembered; then all are forgotten, and their deliveries count as tries again.
const UNTRIED_MAX: usize = 10_000;

/// Deliveries that were given back without a try, by message. The broker counts them all the same, and without this
/// the messages behind a failing one would be dead-lettered with it.
#[derive(Debug, Default)]
pub(super) struct Untried(HashMap<String, u32>);

impl Untried {
    /// One more delivery without a try.
    pub(super) fn note(&mut self, message_id: &str) {
        if self.0.len() >= UNTRIED_MAX {
            self.0.clear();
        }
        *self.0.entry(message_id.to_owned()).or_default() += 1;
    }

    /// How many of these deliveries were tries, this one included.
    pub(super) fn tries(&self, message_id: &str, receives: u32) -> u32 {
        let untried = self.0.get(message_id).copied().unwrap_or(0);
        receives.saturating_sub(untried).max(1)
    }

    /// It has ended.
    pub(super) fn forget(&mut self, message_id: &str) {
        self.0.remove(message_id);
    }
}

/// Groups whose earliest message failed and will come again: what is behind it must wait. Only for brokers that do not
/// see to that themselves.
#[derive(Debug, Default)]
pub(super) struct Waiting(HashMap<String, Head>);

#[derive(Debug)]
struct Head {
    order: u128,
    /// When it should have come back at the latest. It may have gone to another process.
    until: Instant,
}

impl Waiting {
    /// This message of the group failed, and comes again within that time.
    pub(super) fn hold(&mut self, group: &str, order: u128, comes_within: Duration) {
        let now = Instant::now();
        self.0.retain(|_, head| head.until > now);
        let until = now + comes_within;
        match self.0.get_mut(group) {
            // An earlier one is waited for already.
            Some(head) if head.order < order => {}
            _ => {
                self.0.insert(group.to_owned(), Head { order, until });
            }
        }
    }

    /// How long this message must wait for an earlier one, if it must.
    pub(super) fn behind(&self, group: &str, order: u128) -> Option<Duration> {
        let head = self.0.get(group).filter(|head| head.order < order)?;
        head.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// This message has ended.
    pub(super) fn end(&mut self, group: &str, order: u128) {
        if self.0.get(group).is_some_and(|head| head.order <= order) {
            self.0.remove(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_without_a_try_does_not_count_as_one() {
        let mut untried = Untried::default();
        assert_eq!(untried.tries("a", 1), 1);
        untried.note("a");
        untried.note("a");
        assert_eq!(untried.tries("a", 3), 1);
        assert_eq!(untried.tries("a", 5), 3);
        assert_eq!(untried.tries("b", 5), 5);
        untried.forget("a");
        assert_eq!(untried.tries("a", 3), 3);
    }

    #[test]
    fn later_messages_wait_for_the_head_until_it_ends_or_does_not_come_back() {
        let mut waiting = Waiting::default();
        waiting.hold("k", 5, Duration::from_mins(1));
        assert!(waiting.behind("k", 6).is_some());
        assert!(waiting.behind("k", 5).is_none(), "the head itself");
        assert!(waiting.behind("k", 4).is_none());
        assert!(waiting.behind("other", 6).is_none());
        waiting.hold("k", 7, Duration::from_mins(1));
        assert!(waiting.behind("k", 6).is_some(), "the earliest is waited for");
        waiting.end("k", 5);
        assert!(waiting.behind("k", 6).is_none());
        waiting.hold("k", 5, Duration::ZERO);
        assert!(waiting.behind("k", 6).is_none(), "it did not come back in time");
    }
}
