//! The judge: the provider's own records against what was accepted and what the ledger says. Used by `symphony demo`
//! and by the chaos tests. It calls nothing of what it judges; comparing is pure, so that tests can judge it.
//!
//! - [`read_ledger`]: what the ledger says, by SQL of its own.
//! - [`judge`]: where the three disagree.
//! - [`Figures`]: the same as numbers.

mod figures;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::PgConnection;

pub use self::figures::Figures;
use crate::sandbox::{Execution, Record};

/// A payment whose producer was told yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its instruction.
    pub instruction_id: String,
    /// Its participant.
    pub participant_id: String,
    /// Its rail.
    pub rail_type: String,
    /// Such as `10.00 EUR`.
    pub amount: String,
}

/// One item as the ledger tells it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Item {
    /// Its id.
    pub outbox_id: String,
    /// The key the provider knows.
    pub rail_key: String,
    /// Its instruction.
    pub instruction_id: String,
    /// Its participant.
    pub participant_id: String,
    /// Its number in the participant's stream.
    pub sequence_id: i64,
    /// Its rail.
    pub rail_type: String,
    /// The item it was redriven from.
    pub redrive_of: Option<String>,
    /// Such as `10.00 EUR`.
    pub amount: String,
    /// It has not ended.
    pub pending: bool,
    /// Terminal outcomes, each with its reference: `DISPATCHED SBX-1`, `FAILED`.
    pub ends: Vec<String>,
    /// An operator let its lane go on without it.
    pub skipped: bool,
}

/// Everything the ledger says that the judge needs.
pub async fn read_ledger(connection: &mut PgConnection) -> sqlx::Result<Vec<Item>> {
    sqlx::query_as(
        "SELECT i.outbox_id::text, symphony.payment_rail_key(i.outbox_id)::text AS rail_key, i.instruction_id, \
                i.participant_id, i.sequence_id, i.rail_type, i.redrive_of::text, \
                (i.payload #>> '{amount,value}') || ' ' || (i.payload #>> '{amount,currency}') AS amount, \
                EXISTS (SELECT FROM symphony.payment_outbox_pending p WHERE p.outbox_id = i.outbox_id) AS pending, \
                ARRAY(SELECT a.state::text || coalesce(' ' || a.rail_reference, '') \
                        FROM symphony.payment_outbox_attempts a \
                       WHERE a.outbox_id = i.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')) AS ends, \
                EXISTS (SELECT FROM symphony.payment_outbox_events e \
                         WHERE e.outbox_id = i.outbox_id AND e.event_type = 'SKIPPED') AS skipped \
           FROM symphony.payment_outbox_instructions i ORDER BY i.participant_id, i.sequence_id",
    )
    .fetch_all(connection)
    .await
}

/// What was done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// Money moved twice.
    Double,
    /// Accepted, and neither pending nor ended.
    Lost,
    /// DISPATCHED, and the money never moved.
    DispatchedNotExecuted,
    /// FAILED, but the money moved.
    FailedYetExecuted,
    /// Executed or written down, though nobody asked for it.
    Unasked,
    /// Still pending.
    NotEnded,
    /// More than one terminal outcome.
    EndedTwice,
    /// The ledger's reference is not the provider's.
    WrongReference,
    /// What was executed is not what was asked.
    Distorted,
    /// A number is missing in a participant's stream.
    Gap,
    /// A later payment of a FIFO lane was executed before an earlier one.
    Inversion,
}

/// One harm, to one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Of which kind.
    pub harm: Harm,
    /// The item, where there is one.
    pub outbox_id: Option<String>,
    /// What exactly.
    pub words: String,
}

/// What is compared.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// What producers were told yes to, by outbox id.
    pub accepted: &'a BTreeMap<String, Accepted>,
    /// Whether redrives are in `accepted` too. If not, a redrive of an accepted item needs no promise of its own.
    pub redrives_are_accepted: bool,
    /// What the ledger says, once all is over.
    pub items: &'a [Item],
    /// What each provider wrote down.
    pub records: &'a [Record],
    /// Rails with a strict order per participant.
    pub fifo_rails: &'a [&'a str],
}

/// Compare. Nothing is found if every accepted payment was executed exactly once, or refused and not executed.
pub fn judge(evidence: Evidence<'_>) -> Vec<Finding> {
    let mut findings = Findings::default();
    let known = Known::new(evidence);
    find_doubles(&known, &mut findings);
    find_broken_promises(evidence, &known, &mut findings);
    for item in evidence.items {
        let origin = known.origin(item);
        let is_accepted = evidence.accepted.contains_key(&item.outbox_id)
            || !evidence.redrives_are_accepted
                && item.redrive_of.is_some()
                && evidence.accepted.contains_key(&origin.outbox_id);
        if !is_accepted {
            let words = format!("{} was never accepted", item.instruction_id);
            findings.add(Harm::Unasked, Some(&item.outbox_id), words);
        }
        find_wrong_end(item, known.executions_of(item), &mut findings);
    }
    find_gaps(evidence.items, &mut findings);
    for record in evidence.records {
        find_inversions(record, evidence.fifo_rails, &known, &mut findings);
    }
    findings.0
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, harm: Harm, outbox_id: Option<&str>, words: String) {
        self.0.push(Finding { harm, outbox_id: outbox_id.map(str::to_owned), words });
    }
}

/// The evidence, by what it is looked up with.
struct Known<'a> {
    by_id: HashMap<&'a str, &'a Item>,
    by_key: HashMap<&'a str, &'a Item>,
    /// By the provider's key.
    executions: BTreeMap<&'a str, Vec<&'a Execution>>,
}

impl<'a> Known<'a> {
    fn new(evidence: Evidence<'a>) -> Self {
        let mut executions: BTreeMap<&str, Vec<&Execution>> = BTreeMap::new();
        for execution in evidence.records.iter().flat_map(Record::executions) {
            executions.entry(&execution.key).or_default().push(execution);
        }
        let items = evidence.items.iter();
        Self {
            by_id: items.clone().map(|item| (item.outbox_id.as_str(), item)).collect(),
            by_key: items.map(|item| (item.rail_key.as_str(), item)).collect(),
            executions,
        }
    }

    fn executions_of(&self, item: &Item) -> &[&'a Execution] {
        self.executions.get(item.rail_key.as_str()).map_or(&[], Vec::as_slice)
    }

    /// The first of the line of redrives that an item ends.
    fn origin(&self, item: &'a Item) -> &'a Item {
        let mut first = item;
        while let Some(before) = first.redrive_of.as_deref().and_then(|id| self.by_id.get(id)) {
            first = before;
        }
        first
    }
}

/// How often each instruction was executed, by the provider's record alone, whatever the ledger says.
fn times_executed<'a>(executions: impl Iterator<Item = &'a Execution>) -> BTreeMap<&'a str, u64> {
    let mut times = BTreeMap::new();
    for execution in executions {
        *times.entry(execution.instruction.as_deref().unwrap_or("")).or_default() += 1;
    }
    times
}

fn find_doubles(known: &Known<'_>, findings: &mut Findings) {
    for key in known.executions.keys().filter(|key| !known.by_key.contains_key(*key)) {
        findings.add(Harm::Unasked, Some(key), "executed, but in no ledger".to_owned());
    }
    let times = times_executed(known.executions.values().flatten().copied());
    for (instruction, times) in times.into_iter().filter(|(_, times)| *times > 1) {
        let words = format!("instruction {instruction} was executed {times} times");
        findings.add(Harm::Double, None, words);
    }
}

fn find_broken_promises(evidence: Evidence<'_>, known: &Known<'_>, findings: &mut Findings) {
    for (id, accepted) in evidence.accepted {
        let Some(item) = known.by_id.get(id.as_str()) else {
            let words = format!("{} was accepted and is gone", accepted.instruction_id);
            findings.add(Harm::Lost, Some(id), words);
            continue;
        };
        let written = Accepted {
            instruction_id: item.instruction_id.clone(),
            participant_id: item.participant_id.clone(),
            rail_type: item.rail_type.clone(),
            amount: item.amount.clone(),
        };
        if written != *accepted {
            let words = format!("accepted {accepted:?}, written {written:?}");
            findings.add(Harm::Distorted, Some(id), words);
        }
    }
}

fn find_wrong_end(item: &Item, executed: &[&Execution], findings: &mut Findings) {
    let id = Some(item.outbox_id.as_str());
    let end = match item.ends.as_slice() {
        [end] => end,
        [] if item.pending => {
            return findings.add(Harm::NotEnded, id, "still pending".to_owned());
        }
        [] => return findings.add(Harm::Lost, id, "neither ended nor pending".to_owned()),
        ends => return findings.add(Harm::EndedTwice, id, format!("{ends:?}")),
    };
    match (end.split_once(' ').unwrap_or((end, "")), executed) {
        (("DISPATCHED", reference), [one]) => {
            if reference != one.reference() {
                let words = format!("{reference}, {}", one.reference());
                findings.add(Harm::WrongReference, id, words);
            }
            let asked = (
                Some(item.instruction_id.as_str()),
                Some(item.participant_id.as_str()),
                Some(item.sequence_id),
                item.amount.as_str(),
            );
            let done = (
                one.instruction.as_deref(),
                one.participant.as_deref(),
                one.sequence,
                one.amount.as_str(),
            );
            if asked != done {
                findings.add(Harm::Distorted, id, format!("asked {asked:?}, executed {done:?}"));
            }
        }
        (("DISPATCHED", _), []) => {
            findings.add(Harm::DispatchedNotExecuted, id, "not in the record".to_owned());
        }
        (("FAILED", _), []) => {}
        (("FAILED", _), _) => {
            findings.add(Harm::FailedYetExecuted, id, format!("{} times", executed.len()));
        }
        (end, _) => findings.add(Harm::Double, id, format!("{end:?}, {} times", executed.len())),
    }
}

/// Numbers missing in participants' streams, each of which starts at 1.
fn find_gaps(items: &[Item], findings: &mut Findings) {
    let mut streams: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for item in items {
        streams.entry(&item.participant_id).or_default().insert(item.sequence_id);
    }
    for (participant, numbers) in streams {
        let last = numbers.last().copied().unwrap_or(0);
        for missing in (1..=last).filter(|number| !numbers.contains(number)) {
            findings.add(Harm::Gap, None, format!("{participant}: {missing} is missing"));
        }
    }
}

/// Executions out of their lane's order. A redrive runs in the place of the first of its line.
fn find_inversions(
    record: &Record,
    fifo_rails: &[&str],
    known: &Known<'_>,
    findings: &mut Findings,
) {
    let mut furthest: HashMap<(&str, &str), i64> = HashMap::new();
    for execution in record.executions() {
        let Some(item) = known.by_key.get(execution.key.as_str()) else { continue };
        if item.skipped || !fifo_rails.contains(&item.rail_type.as_str()) {
            continue;
        }
        let place = known.origin(item).sequence_id;
        let before = furthest.entry((&item.participant_id, &item.rail_type)).or_default();
        if place <= *before {
            let words = format!("{place} ran after {before}");
            findings.add(Harm::Inversion, Some(&item.outbox_id), words);
        }
        *before = (*before).max(place);
    }
}
