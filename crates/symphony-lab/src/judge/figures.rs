//! What was found, as numbers.

use serde::Serialize;

use super::{Evidence, Finding, Harm, times_executed};
use crate::sandbox::Record;

/// What both sides say, and where they disagree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Payments in the ledger, redrives included.
    pub asked: u64,
    /// Ended DISPATCHED.
    pub dispatched: u64,
    /// Ended FAILED.
    pub failed: u64,
    /// Not ended: must be 0 at the end.
    pub pending: u64,
    /// Payments the providers executed exactly once: must be those that are DISPATCHED.
    pub executed_once: u64,
    /// Payments the providers executed more than once, under one key or under several: must be 0.
    pub executed_twice: u64,
    /// FAILED, but a provider executed it: must be 0.
    pub executed_though_failed: u64,
    /// DISPATCHED, but no provider executed it: must be 0.
    pub dispatched_not_executed: u64,
    /// Written down or executed with another amount, reference or name than was asked: must be 0.
    pub other_terms: u64,
    /// Executed, or in the ledger, although no producer was told so: must be 0.
    pub never_asked: u64,
    /// Producers were told yes, but it has neither ended nor is it pending: must be 0.
    pub lost: u64,
    /// More than one terminal outcome: must be 0.
    pub ended_twice: u64,
    /// Numbers missing in participants' streams: must be 0.
    pub gaps: u64,
    /// Executed before one that stands before it in a strict order: must be 0.
    pub order_inversions: u64,
}

impl Figures {
    /// Of the same evidence and what was found in it.
    pub fn new(evidence: Evidence<'_>, findings: &[Finding]) -> Self {
        let found = |harm: Harm| count(findings.iter().filter(|finding| finding.harm == harm));
        let items = || evidence.items.iter();
        let ended = |state: &str| {
            count(items().filter(|item| item.ends.iter().any(|end| end.starts_with(state))))
        };
        let is_of_an_item =
            |finding: &&Finding| finding.harm == Harm::Double && finding.outbox_id.is_some();
        let times = times_executed(evidence.records.iter().flat_map(Record::executions));
        Self {
            asked: count(items()),
            dispatched: ended("DISPATCHED"),
            failed: ended("FAILED"),
            pending: count(items().filter(|item| item.pending)),
            executed_once: count(times.values().filter(|times| **times == 1)),
            executed_twice: count(times.values().filter(|times| **times > 1))
                .max(count(findings.iter().filter(is_of_an_item))),
            executed_though_failed: found(Harm::FailedYetExecuted),
            dispatched_not_executed: found(Harm::DispatchedNotExecuted),
            other_terms: found(Harm::WrongReference) + found(Harm::Distorted),
            never_asked: found(Harm::Unasked),
            lost: found(Harm::Lost),
            ended_twice: found(Harm::EndedTwice),
            gaps: found(Harm::Gap),
            order_inversions: found(Harm::Inversion),
        }
    }

    /// What is not as it must be; empty when no money moved twice and none was lost.
    pub fn wrong(&self) -> Vec<&'static str> {
        [
            ("nothing was paid", self.dispatched == 0),
            ("payments are still pending", self.pending != 0),
            ("payments do not add up", self.dispatched + self.failed + self.pending != self.asked),
            ("executed and DISPATCHED differ", self.executed_once != self.dispatched),
            ("executed twice", self.executed_twice != 0),
            ("executed though FAILED", self.executed_though_failed != 0),
            ("DISPATCHED but not executed", self.dispatched_not_executed != 0),
            ("another amount or reference", self.other_terms != 0),
            ("never asked for", self.never_asked != 0),
            ("lost", self.lost != 0),
            ("ended twice", self.ended_twice != 0),
            ("gaps", self.gaps != 0),
            ("order inversions", self.order_inversions != 0),
        ]
        .into_iter()
        .filter_map(|(problem, wrong)| wrong.then_some(problem))
        .collect()
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}
