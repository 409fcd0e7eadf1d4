//! How far a consumer is behind: never 0 because nobody looked.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use chrono::{DateTime, Utc};

/// How far a consumer is behind. Grows while events are in hand and not applied, and while the source cannot be read;
/// 0 only once the source has said that it is empty and that nobody has any of it in hand; unknown before anything was
/// heard of it, and while what there is is in other hands.
#[derive(Debug, Default)]
pub struct Lag(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the events in hand occurred, by the receipts of their messages.
    in_hand: HashMap<String, DateTime<Utc>>,
    by_time: BTreeSet<(DateTime<Utc>, String)>,
    /// What is known when none is in hand.
    otherwise: Otherwise,
}

#[derive(Debug, Default)]
enum Otherwise {
    #[default]
    Unknown,
    /// The source has said so, and whatever comes is handed out at once.
    Empty,
    /// It was empty then, and has not been heard of since.
    EmptyUntil(Instant),
    /// The last one in hand occurred then: what comes next is hardly older.
    After(DateTime<Utc>),
}

impl Lag {
    /// In seconds; `None` if it is unknown.
    pub fn seconds(&self) -> Option<u64> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((oldest, _)) = state.by_time.first() {
            return Some(age_seconds(*oldest));
        }
        match state.otherwise {
            Otherwise::Unknown => None,
            Otherwise::Empty => Some(0),
            Otherwise::EmptyUntil(then) => Some(then.elapsed().as_secs()),
            Otherwise::After(occurred_at) => Some(age_seconds(occurred_at)),
        }
    }

    /// An event came into hand.
    pub(super) fn take(&self, receipt: &str, occurred_at: DateTime<Utc>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = state.in_hand.insert(receipt.to_owned(), occurred_at) {
            state.by_time.remove(&(before, receipt.to_owned()));
        }
        state.by_time.insert((occurred_at, receipt.to_owned()));
    }

    /// It is in hand no more.
    pub(super) fn end(&self, receipt: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(occurred_at) = state.in_hand.remove(receipt) {
            state.by_time.remove(&(occurred_at, receipt.to_owned()));
            state.otherwise = Otherwise::After(occurred_at);
        }
    }

    /// The source says that there is nothing, neither waiting nor hidden.
    pub(super) fn empty(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.in_hand.is_empty() {
            state.otherwise = Otherwise::Empty;
        }
    }

    /// Nothing is to be had, but something is in another process's hand, or was in that of one that is gone.
    pub(super) fn hidden(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.in_hand.is_empty() {
            state.otherwise = Otherwise::Unknown;
        }
    }

    /// The source cannot be read.
    pub(super) fn trouble(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(state.otherwise, Otherwise::Empty) {
            state.otherwise = Otherwise::EmptyUntil(Instant::now());
        }
    }
}

fn age_seconds(occurred_at: DateTime<Utc>) -> u64 {
    u64::try_from((Utc::now() - occurred_at).num_seconds()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn ago(seconds: i64) -> DateTime<Utc> {
        Utc::now() - TimeDelta::seconds(seconds)
    }

    #[test]
    fn it_is_unknown_until_something_is_heard_and_0_only_when_the_source_is_empty() {
        let lag = Lag::default();
        assert_eq!(lag.seconds(), None);
        lag.trouble();
        assert_eq!(lag.seconds(), None, "trouble tells nothing");
        lag.empty();
        assert_eq!(lag.seconds(), Some(0));
        lag.take("new", ago(50));
        lag.take("old", ago(100));
        assert!(lag.seconds().is_some_and(|seconds| seconds >= 100), "the oldest in hand");
        lag.empty();
        lag.end("old");
        assert!(lag.seconds().is_some_and(|seconds| (50..100).contains(&seconds)));
        lag.end("new");
        assert!(lag.seconds().is_some_and(|seconds| seconds >= 50), "nobody said it is empty");
        lag.empty();
        assert_eq!(lag.seconds(), Some(0));
    }

    #[test]
    fn it_grows_from_the_last_empty_answer_while_the_source_cannot_be_read() {
        let lag = Lag::default();
        lag.empty();
        lag.trouble();
        let minute = std::time::Duration::from_mins(1);
        // An hour-old machine at least; else there is nothing to subtract from.
        if let Some(then) = Instant::now().checked_sub(minute) {
            lag.0.lock().unwrap_or_else(PoisonError::into_inner).otherwise =
                Otherwise::EmptyUntil(then);
            lag.trouble();
            assert!(lag.seconds().is_some_and(|seconds| seconds >= 60));
        }
        lag.empty();
        assert_eq!(lag.seconds(), Some(0));
    }

    #[test]
    fn what_others_have_in_hand_makes_it_unknown_and_never_0() {
        let lag = Lag::default();
        lag.hidden();
        assert_eq!(lag.seconds(), None);
        lag.empty();
        lag.hidden();
        assert_eq!(lag.seconds(), None);
        lag.take("a", ago(10));
        lag.hidden();
        assert!(lag.seconds().is_some_and(|seconds| seconds >= 10), "of its own it knows");
    }

    #[test]
    fn a_message_taken_again_counts_once() {
        let lag = Lag::default();
        lag.take("a", ago(10));
        lag.take("a", ago(20));
        lag.end("a");
        lag.empty();
        assert_eq!(lag.seconds(), Some(0));
    }
}
