//! The judge: the provider's own record against what was accepted and what the ledger says. Pure, so that it can
//! itself be judged.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use symphony::db::DbError;
use symphony_connect::sandbox::{Execution, Record};

use super::producers::Accepted;

/// One instruction as the ledger tells it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Item {
    pub outbox_id: String,
    /// The key the provider knows.
    pub rail_key: String,
    pub instruction_id: String,
    pub participant_id: String,
    pub sequence_id: i64,
    pub rail_type: String,
    pub redrive_of: Option<String>,
    pub amount: String,
    /// Terminal outcomes, each with its reference.
    pub ends: Vec<String>,
    /// An operator let its lane go on without it.
    pub skipped: bool,
}

/// Everything the ledger says that the judge needs.
pub async fn read_ledger(pool: &sqlx::PgPool) -> Result<Vec<Item>, DbError> {
    Ok(sqlx::query_as(
        "SELECT i.outbox_id::text, public.payment_rail_key(i.outbox_id)::text AS rail_key, i.instruction_id, i.participant_id, i.sequence_id, i.rail_type, i.redrive_of::text, \
                (i.payload #>> '{amount,value}') || ' ' || (i.payload #>> '{amount,currency}') AS amount, \
                ARRAY(SELECT a.state::text || coalesce(' ' || a.rail_reference, '') FROM payment_outbox_attempts a \
                       WHERE a.outbox_id = i.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')) AS ends, \
                EXISTS (SELECT FROM payment_outbox_events e \
                         WHERE e.outbox_id = i.outbox_id AND e.event_type = 'SKIPPED') AS skipped \
           FROM payment_outbox_instructions i ORDER BY i.participant_id, i.sequence_id",
    )
    .fetch_all(pool)
    .await?)
}

/// What was done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// Money moved twice.
    Double,
    /// Accepted, and nobody knows it any more; or DISPATCHED, and the money never moved.
    Lost,
    /// FAILED, but the money moved.
    FailedYetExecuted,
    /// Executed or written down, though nobody asked for it.
    Unasked,
    /// No terminal outcome, or more than one.
    NotEndedOnce,
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
    pub harm: Harm,
    /// The item, where there is one.
    pub outbox_id: Option<String>,
    pub words: String,
}

/// Compare. Nothing is found if every accepted payment was executed exactly once, or refused and not executed.
pub fn judge(
    accepted: &BTreeMap<String, Accepted>,
    items: &[Item],
    record: &Record,
    fifo_rails: &[&str],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |harm, outbox_id: Option<&str>, words: String| {
        findings.push(Finding { harm, outbox_id: outbox_id.map(str::to_owned), words });
    };
    let by_id: HashMap<&str, &Item> = items.iter().map(|i| (i.outbox_id.as_str(), i)).collect();
    let by_key: HashMap<&str, &Item> = items.iter().map(|i| (i.rail_key.as_str(), i)).collect();
    let mut executions: HashMap<&str, Vec<&Execution>> = HashMap::new();
    let mut by_instruction: BTreeMap<&str, u64> = BTreeMap::new();
    for execution in record.executions() {
        executions.entry(&execution.key).or_default().push(execution);
        *by_instruction.entry(execution.instruction.as_deref().unwrap_or("")).or_default() += 1;
        if !by_key.contains_key(execution.key.as_str()) {
            find(Harm::Unasked, Some(&execution.key), "executed, but in no ledger".to_owned());
        }
    }
    // By the provider's record alone, whatever the ledger says.
    for (instruction, times) in by_instruction.into_iter().filter(|(_, times)| *times > 1) {
        find(Harm::Double, None, format!("instruction {instruction} was executed {times} times"));
    }
    for (instruction, payment) in accepted {
        let id = payment.outbox_id.to_string();
        match by_id.get(id.as_str()) {
            None => find(Harm::Lost, Some(&id), format!("{instruction} was accepted and is gone")),
            Some(item) => {
                let asked = (&payment.participant, &payment.rail, &payment.amount);
                if (&item.participant_id, &item.rail_type, &item.amount) != asked {
                    find(Harm::Distorted, Some(&id), format!("{instruction}: {asked:?}"));
                }
            }
        }
    }
    for item in items {
        let id = Some(item.outbox_id.as_str());
        let known = accepted.get(&item.instruction_id);
        if item.redrive_of.is_none()
            && known.is_none_or(|known| known.outbox_id.to_string() != item.outbox_id)
        {
            find(Harm::Unasked, id, format!("{} was never accepted", item.instruction_id));
        }
        let executed = executions.get(item.rail_key.as_str()).map_or(&[][..], Vec::as_slice);
        let [end] = item.ends.as_slice() else {
            find(Harm::NotEndedOnce, id, format!("{:?}", item.ends));
            continue;
        };
        match (end.split_once(' ').unwrap_or((end, "")), executed) {
            (("DISPATCHED", reference), [one]) => {
                if reference != one.reference() {
                    find(Harm::WrongReference, id, format!("{reference}, {}", one.reference()));
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
                    find(Harm::Distorted, id, format!("asked {asked:?}, executed {done:?}"));
                }
            }
            (("DISPATCHED", _), []) => find(Harm::Lost, id, "DISPATCHED, not executed".to_owned()),
            (("FAILED", _), []) => {}
            (("FAILED", _), _) => {
                find(Harm::FailedYetExecuted, id, format!("{} times", executed.len()));
            }
            (end, _) => find(Harm::Double, id, format!("{end:?}, {} times", executed.len())),
        }
    }
    for (participant, numbers) in numbers(items) {
        let complete = (1..=i64::try_from(numbers.len()).unwrap()).collect::<BTreeSet<_>>();
        if numbers != complete {
            find(Harm::Gap, None, format!("{participant}: {:?}", complete.difference(&numbers)));
        }
    }
    let mut last: HashMap<(&str, &str), i64> = HashMap::new();
    for execution in record.executions() {
        let Some(item) = by_key.get(execution.key.as_str()) else { continue };
        if item.skipped || !fifo_rails.contains(&item.rail_type.as_str()) {
            continue;
        }
        // A redrive runs in the place of the first of its line.
        let mut first = *item;
        while let Some(before) = first.redrive_of.as_deref().and_then(|id| by_id.get(id)) {
            first = before;
        }
        let before = last
            .insert((&item.participant_id, &item.rail_type), first.sequence_id)
            .unwrap_or_default();
        if first.sequence_id <= before {
            let words = format!("{} ran after {before}", first.sequence_id);
            find(Harm::Inversion, Some(&item.outbox_id), words);
        }
    }
    findings
}

fn numbers(items: &[Item]) -> BTreeMap<&str, BTreeSet<i64>> {
    let mut numbers: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for item in items {
        numbers.entry(&item.participant_id).or_default().insert(item.sequence_id);
    }
    numbers
}
