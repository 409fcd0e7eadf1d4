//! What became of an outcome that was to be written down, and how it is counted.

/// What became of one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completed {
    /// It is in the ledger.
    Recorded {
        /// How it was counted; work may stand for several items.
        tallies: Tallies,
        /// The next of its order is due now.
        successor: bool,
    },
    /// Nothing was written, and what it rests on is not so any more: carry it out again. It is still held.
    Again,
    /// Nothing was written: somebody holds what it needs. Write it by itself, later. It is still held.
    Later,
    /// Nothing was written, so that others come first: write it with the next batch. It is still held.
    NextBatch,
    /// The lease had passed to another: keep it as evidence.
    Late,
    /// The unique index refused a second terminal outcome: the backstop held, and the outcome is kept as evidence.
    Blocked,
    /// The database refused it for a reason that should be impossible.
    Alarm,
}

impl Completed {
    /// In the ledger's words, for traces. Of several items the worst.
    pub(crate) fn named(self) -> &'static str {
        match self {
            Self::Recorded { tallies, .. } => tallies.worst(),
            Self::Again => "AGAIN",
            Self::Later => "LATER",
            Self::NextBatch => "NEXT_BATCH",
            Self::Late => "LATE",
            Self::Blocked => "BLOCKED",
            Self::Alarm => "REFUSED",
        }
    }
}

/// What the ledger now says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tally {
    /// It was carried out.
    Dispatched,
    /// It will be tried again.
    Retryable,
    /// Nobody knows; it will be asked about.
    Unknown,
    /// It failed for good.
    Failed,
    /// It waits for a person.
    Parked,
}

/// How many outcomes of each kind one piece of work brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tallies {
    pub(super) dispatched: usize,
    pub(super) retryable: usize,
    pub(super) unknown: usize,
    pub(super) failed: usize,
    pub(super) parked: usize,
}

impl Tallies {
    /// Count one more.
    pub fn count(&mut self, tally: Tally) {
        *match tally {
            Tally::Dispatched => &mut self.dispatched,
            Tally::Retryable => &mut self.retryable,
            Tally::Unknown => &mut self.unknown,
            Tally::Failed => &mut self.failed,
            Tally::Parked => &mut self.parked,
        } += 1;
    }

    fn worst(self) -> &'static str {
        let all = [
            (self.parked, "PARKED"),
            (self.failed, "FAILED"),
            (self.unknown, "UNKNOWN"),
            (self.retryable, "RETRYABLE"),
        ];
        all.into_iter().find(|(count, _)| *count > 0).map_or("DISPATCHED", |(_, name)| name)
    }
}

impl From<Tally> for Tallies {
    fn from(tally: Tally) -> Self {
        let mut tallies = Self::default();
        tallies.count(tally);
        tallies
    }
}
