//! The judge: the banks' own records against the ledger. Pure, so that a test can show it every kind of lie.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use symphony_connect::sandbox::{Execution, Record};

use super::ledger::Item;

/// What both sides say, and where they disagree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Figures {
    /// Payments in the ledger, redrives included.
    pub(super) asked: u64,
    /// Ended DISPATCHED.
    pub(super) dispatched: u64,
    /// Ended FAILED.
    pub(super) failed: u64,
    /// Not ended: must be 0 at the end.
    pub(super) pending: u64,
    /// Payments the banks executed exactly once: must be those that are DISPATCHED.
    pub(super) executed_once: u64,
    /// Payments the banks executed more than once, under one key or under several: must be 0.
    pub(super) executed_twice: u64,
    /// FAILED, but a bank executed it: must be 0.
    pub(super) executed_though_failed: u64,
    /// DISPATCHED, but no bank executed it: must be 0.
    pub(super) dispatched_not_executed: u64,
    /// DISPATCHED with another amount or reference than the bank's: must be 0.
    pub(super) other_terms: u64,
    /// Executed, or in the ledger, although no producer was told so: must be 0.
    pub(super) never_asked: u64,
    /// Producers were told yes, but it has neither ended nor is it pending: must be 0.
    pub(super) lost: u64,
    /// More than one terminal outcome: must be 0.
    pub(super) ended_twice: u64,
    /// Numbers missing in merchants' streams: must be 0.
    pub(super) gaps: u64,
    /// Executed before one that stands before it in a strict order: must be 0.
    pub(super) order_inversions: u64,
}

/// Compare what producers were told, what the ledger says and what the banks did.
pub(super) fn compare(
    accepted: &BTreeSet<String>,
    items: &[Item],
    banks: &[Record],
    ordered_rail: &str,
) -> Figures {
    let mut executions: HashMap<&str, Vec<&Execution>> = HashMap::new();
    for execution in banks.iter().flat_map(Record::executions) {
        executions.entry(&execution.key).or_default().push(execution);
    }
    let known: BTreeSet<&str> = items.iter().map(|item| item.outbox_id.as_str()).collect();
    let keys: BTreeSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
    let mut figures = Figures {
        never_asked: count(executions.keys().filter(|key| !keys.contains(*key)))
            + count(known.iter().filter(|id| !accepted.contains(**id))),
        lost: count(accepted.iter().filter(|id| !known.contains(id.as_str()))),
        order_inversions: order_inversions(items, banks, ordered_rail),
        gaps: gaps(items),
        ..Figures::default()
    };
    // By what was asked for, not by key: a redrive has a key of its own and must not pay again.
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for item in items {
        let executed = executions.get(item.key.as_str()).map_or(&[][..], Vec::as_slice);
        *times.entry(&item.instruction_id).or_default() += count(executed.iter());
        figures.asked += 1;
        figures.dispatched += u64::from(item.dispatched > 0);
        figures.failed += u64::from(item.failed > 0);
        figures.pending += u64::from(item.pending);
        figures.ended_twice += u64::from(item.dispatched + item.failed > 1);
        figures.lost += u64::from(!item.pending && item.dispatched + item.failed == 0);
        match executed.first() {
            Some(_) if item.failed > 0 => figures.executed_though_failed += 1,
            None if item.dispatched > 0 => figures.dispatched_not_executed += 1,
            Some(execution) if item.dispatched > 0 => {
                let same = execution.amount == item.amount
                    && item.reference.as_ref() == Some(&execution.reference());
                figures.other_terms += u64::from(!same);
            }
            _ => {}
        }
    }
    figures.executed_once = count(times.values().filter(|times| **times == 1));
    figures.executed_twice = count(times.values().filter(|times| **times > 1));
    figures
}

impl Figures {
    /// What is not as it must be; empty when no money moved twice and none was lost.
    pub(super) fn wrong(&self) -> Vec<&'static str> {
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

/// Executions out of their lane's order, in the order in which the banks executed.
fn order_inversions(items: &[Item], banks: &[Record], ordered_rail: &str) -> u64 {
    let lanes: HashMap<&str, (&str, i64)> = items
        .iter()
        .filter(|item| item.rail_type == ordered_rail)
        .map(|item| (item.key.as_str(), (item.participant_id.as_str(), item.place)))
        .collect();
    let mut inversions = 0;
    for bank in banks {
        let mut furthest: HashMap<&str, i64> = HashMap::new();
        for execution in bank.executions() {
            if let Some((participant, place)) = lanes.get(execution.key.as_str()) {
                let before = furthest.entry(participant).or_insert(i64::MIN);
                inversions += u64::from(*place <= *before);
                *before = (*before).max(*place);
            }
        }
    }
    inversions
}

/// Numbers missing in merchants' streams, each of which starts at 1.
fn gaps(items: &[Item]) -> u64 {
    let mut streams: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for item in items {
        streams.entry(&item.participant_id).or_default().insert(item.sequence_id);
    }
    streams
        .values()
        .map(|numbers| {
            let last = numbers.last().copied().unwrap_or(0);
            u64::try_from(last).unwrap_or(0).abs_diff(count(numbers.iter()))
        })
        .sum()
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}
