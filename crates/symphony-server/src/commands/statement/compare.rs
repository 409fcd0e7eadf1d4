//! What a line of a bank's statement means for the payment it names: pure, tested as a table.

use std::collections::HashMap;

use symphony::db::StatedItem;
use symphony::domain::Resolution;
use uuid::Uuid;

/// One line of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) line: usize,
    /// The key the bank saw.
    pub(super) key: String,
    pub(super) reference: Option<String>,
    pub(super) result: String,
}

/// What it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It settles a parked payment.
    Settles(Resolution),
    /// The ledger says the same.
    Agrees,
    /// It is not parked: the machine still has it.
    Waits(&'static str),
    /// Not a key of ours.
    Unknown,
    /// The ledger, or another line, says something else.
    Contradicts(String),
    /// It says nothing that can be understood.
    Unreadable(String),
}

/// One finding for each line. Two lines of one key that say different things contradict each other, whatever the ledger says.
pub(super) fn compare(entries: &[Entry], known: &HashMap<Uuid, StatedItem>) -> Vec<Finding> {
    let mut said: HashMap<&str, &Entry> = HashMap::new();
    let mut disputed: HashMap<&str, usize> = HashMap::new();
    for entry in entries {
        let first = said.entry(&entry.key).or_insert(entry);
        if (&first.result, &first.reference) != (&entry.result, &entry.reference) {
            disputed.insert(&entry.key, first.line);
        }
    }
    entries
        .iter()
        .map(|entry| match disputed.get(entry.key.as_str()) {
            Some(line) if entry.key.parse::<Uuid>().is_ok_and(|key| known.contains_key(&key)) => {
                let why = format!(
                    "the statement names this key twice, from line {line} on, and differently"
                );
                Finding::Contradicts(why)
            }
            _ => compare_one(entry, known),
        })
        .collect()
}

fn compare_one(entry: &Entry, known: &HashMap<Uuid, StatedItem>) -> Finding {
    // Other payments on the account have other keys: they are nobody's business here.
    let Some(item) = entry.key.parse().ok().and_then(|key: Uuid| known.get(&key)) else {
        return Finding::Unknown;
    };
    match (entry.result.as_str(), &entry.reference) {
        ("executed", Some(reference)) => executed(item, reference),
        ("executed", None) => Finding::Unreadable(
            "an executed payment needs the bank's reference: it is the proof".to_owned(),
        ),
        ("refused", _) => refused(item),
        _ => Finding::Unreadable("the result must be executed or refused".to_owned()),
    }
}

const NOT_PARKED: &str =
    "it is not parked: a worker asks the bank itself; to settle it by hand park it first";

fn executed(item: &StatedItem, reference: &str) -> Finding {
    let other = |what: &str, recorded: Option<&str>| {
        let recorded = recorded.unwrap_or("none");
        Finding::Contradicts(format!("{what} with reference {recorded}, the bank with {reference}"))
    };
    match (item.ended.as_deref(), item.state.as_str()) {
        (Some("DISPATCHED"), _) if item.reference.as_deref() == Some(reference) => Finding::Agrees,
        (Some("DISPATCHED"), _) => {
            other("the ledger has it as executed", item.reference.as_deref())
        }
        (Some(_), "REDRIVEN") => Finding::Contradicts(
            "the ledger calls it FAILED and it was sent again under another key: the bank has executed it too"
                .to_owned(),
        ),
        (Some(_), _) => Finding::Contradicts(
            "the ledger calls it FAILED, and the bank has executed it: do not redrive it".to_owned(),
        ),
        (None, "PARKED") if item.late_yes && item.late_reference.as_deref() != Some(reference) => {
            other("a lost worker heard of it as executed", item.late_reference.as_deref())
        }
        (None, "PARKED") => {
            Finding::Settles(Resolution::Dispatched { rail_reference: reference.to_owned() })
        }
        (None, _) => Finding::Waits(NOT_PARKED),
    }
}

fn refused(item: &StatedItem) -> Finding {
    match (item.ended.as_deref(), item.state.as_str()) {
        (Some("FAILED"), _) => Finding::Agrees,
        (Some(_), _) => Finding::Contradicts(
            "the ledger has it as executed, and the bank says that it refused it".to_owned(),
        ),
        (None, "PARKED") if item.late_yes => Finding::Contradicts(
            "a lost worker heard that it was executed, and the statement says refused".to_owned(),
        ),
        (None, "PARKED") => Finding::Settles(Resolution::Failed),
        (None, _) => Finding::Waits(NOT_PARKED),
    }
}

#[cfg(test)]
mod tests {
    use symphony::domain::OutboxId;

    use super::*;

    fn item(state: &str, reference: Option<&str>, late: Option<&str>) -> StatedItem {
        let ended = match state {
            "DISPATCHED" | "FAILED" => Some(state.to_owned()),
            "REDRIVEN" => Some("FAILED".to_owned()),
            _ => None,
        };
        StatedItem {
            rail_key: Uuid::from_u128(1),
            outbox_id: OutboxId(Uuid::from_u128(2)),
            instruction_id: "inv".to_owned(),
            state: state.to_owned(),
            ended,
            reference: reference.map(str::to_owned),
            late_yes: late.is_some(),
            late_reference: late.map(str::to_owned),
        }
    }

    fn entry(line: usize, result: &str, reference: Option<&str>) -> Entry {
        Entry {
            line,
            key: Uuid::from_u128(1).to_string(),
            reference: reference.map(str::to_owned),
            result: result.to_owned(),
        }
    }

    fn word(finding: &Finding) -> &'static str {
        match finding {
            Finding::Settles(Resolution::Dispatched { .. }) => "dispatched",
            Finding::Settles(Resolution::Failed) => "failed",
            Finding::Settles(Resolution::Retry) => "retry",
            Finding::Agrees => "agrees",
            Finding::Waits(_) => "waits",
            Finding::Unknown => "unknown",
            Finding::Contradicts(_) => "contradicts",
            Finding::Unreadable(_) => "unreadable",
        }
    }

    #[test]
    fn a_line_settles_only_what_is_parked_and_never_against_what_is_known() {
        //  state, its reference, a late yes's | result, reference | finding
        for (state, reference, late, result, stated, expected) in [
            ("PARKED", None, None, "executed", Some("R1"), "dispatched"),
            ("PARKED", None, Some("R1"), "executed", Some("R1"), "dispatched"),
            ("PARKED", None, Some("R2"), "executed", Some("R1"), "contradicts"),
            ("PARKED", None, None, "executed", None, "unreadable"),
            ("PARKED", None, None, "refused", None, "failed"),
            ("PARKED", None, Some("R1"), "refused", None, "contradicts"),
            ("PARKED", None, None, "maybe", Some("R1"), "unreadable"),
            ("PARKED", None, None, "", None, "unreadable"),
            ("DISPATCHED", Some("R1"), None, "executed", Some("R1"), "agrees"),
            ("DISPATCHED", Some("R1"), None, "executed", Some("R2"), "contradicts"),
            ("DISPATCHED", None, None, "executed", Some("R2"), "contradicts"),
            ("DISPATCHED", Some("R1"), None, "refused", None, "contradicts"),
            ("FAILED", None, None, "refused", None, "agrees"),
            ("FAILED", None, None, "executed", Some("R1"), "contradicts"),
            ("REDRIVEN", None, None, "executed", Some("R1"), "contradicts"),
            ("REDRIVEN", None, None, "refused", None, "agrees"),
            ("IN_FLIGHT", None, None, "executed", Some("R1"), "waits"),
            ("SCHEDULED", None, None, "refused", None, "waits"),
        ] {
            let known = HashMap::from([(Uuid::from_u128(1), item(state, reference, late))]);
            let findings = compare(&[entry(2, result, stated)], &known);
            let words: Vec<_> = findings.iter().map(word).collect();
            assert_eq!(words, [expected], "{state} {reference:?} {late:?} | {result} {stated:?}");
        }
    }

    #[test]
    fn other_keys_are_nobodys_business_and_two_words_about_one_key_are_a_contradiction() {
        let known = HashMap::from([(Uuid::from_u128(1), item("PARKED", None, None))]);
        let strange = Entry { key: "TX 4711".to_owned(), ..entry(2, "whatever", None) };
        let other = Entry { key: Uuid::from_u128(9).to_string(), ..entry(3, "executed", None) };
        let findings = compare(&[strange, other], &known);
        assert_eq!(findings.iter().map(word).collect::<Vec<_>>(), ["unknown", "unknown"]);
        let twice = [entry(2, "executed", Some("R1")), entry(3, "refused", None)];
        let findings = compare(&twice, &known);
        assert_eq!(findings.iter().map(word).collect::<Vec<_>>(), ["contradicts", "contradicts"]);
        let same = [entry(2, "executed", Some("R1")), entry(3, "executed", Some("R1"))];
        assert_eq!(
            compare(&same, &known).iter().map(word).collect::<Vec<_>>(),
            ["dispatched", "dispatched"]
        );
    }
}
