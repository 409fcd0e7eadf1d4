//! The judge is judged: each kind of harm, done on purpose, is found, and nothing else is.

use std::collections::BTreeMap;
use std::path::Path;

use symphony::domain::OutboxId;
use symphony_connect::sandbox::Record;
use uuid::Uuid;

use super::judge::{Harm, Item, judge};
use super::producers::Accepted;

fn id(number: u128) -> String {
    Uuid::from_u128(number).to_string()
}

fn item(number: u128, end: &str) -> Item {
    Item {
        outbox_id: id(number),
        rail_key: id(number),
        instruction_id: format!("i{number}"),
        participant_id: "acme".to_owned(),
        sequence_id: i64::try_from(number).unwrap(),
        rail_type: "instant".to_owned(),
        redrive_of: None,
        amount: "10.00 EUR".to_owned(),
        ends: if end.is_empty() { Vec::new() } else { vec![end.to_owned()] },
        skipped: false,
    }
}

/// A record of these items, executed in this order.
fn record(executed: &[&Item]) -> Record {
    let lines: String = executed
        .iter()
        .enumerate()
        .map(|(index, item)| {
            format!(
                r#"{{"outcome":"executed","number":{},"key":"{}","instruction":"{}","participant":"{}","sequence":{},"body_sha256":"{}","amount":"{}","at_ms":1}}"#,
                index + 1, item.outbox_id, item.instruction_id, item.participant_id, item.sequence_id, "0".repeat(64), item.amount,
            ) + "\n"
        })
        .collect();
    let path = std::env::temp_dir().join(format!("symphony-judge-{}", Uuid::new_v4().simple()));
    std::fs::write(&path, lines).unwrap();
    let record = read_and_remove(&path);
    assert_eq!(record.lines.len(), executed.len());
    record
}

fn read_and_remove(path: &Path) -> Record {
    let record = Record::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    record
}

fn harms(ledger: &[Item], executed: &[&Item], forgotten: &[&Item]) -> Vec<Harm> {
    let accepted: BTreeMap<String, Accepted> = ledger
        .iter()
        .chain(forgotten.iter().copied())
        .filter(|item| item.redrive_of.is_none() && !item.instruction_id.starts_with("nobody"))
        .map(|item| {
            let accepted = Accepted {
                outbox_id: OutboxId(item.outbox_id.parse().unwrap()),
                participant: item.participant_id.clone(),
                rail: item.rail_type.clone(),
                amount: "10.00 EUR".to_owned(),
            };
            (item.instruction_id.clone(), accepted)
        })
        .collect();
    let mut harms: Vec<_> = judge(&accepted, ledger, &record(executed), &["instant"])
        .into_iter()
        .map(|finding| finding.harm)
        .collect();
    harms.sort();
    harms.dedup();
    harms
}

#[test]
fn the_judge_acquits_what_went_well() {
    let [one, two, three] =
        [item(1, "DISPATCHED SBX-1"), item(2, "FAILED"), item(3, "DISPATCHED SBX-3")];
    // The second was refused and tried again in its place, as number 4.
    let again = Item {
        instruction_id: "i2".to_owned(),
        redrive_of: Some(id(2)),
        ..item(4, "DISPATCHED SBX-2")
    };
    let ledger = [one.clone(), two, three.clone(), again.clone()];
    assert_eq!(harms(&ledger, &[&one, &again, &three], &[]), []);
}

#[test]
fn the_judge_finds_each_kind_of_harm() {
    let [one, two] = [item(1, "DISPATCHED SBX-1"), item(2, "DISPATCHED SBX-2")];
    let both = [one.clone(), two.clone()];
    assert_eq!(harms(&both, &[&one, &two, &two], &[]), [Harm::Double, Harm::Inversion]);
    assert_eq!(harms(&both, &[&one], &[]), [Harm::Lost]);
    assert_eq!(harms(&both, &[&one, &two], &[&item(3, "")]), [Harm::Lost]);
    let stranger = item(9, "");
    assert_eq!(harms(&both, &[&one, &two, &stranger], &[]), [Harm::Unasked]);
    let unasked = Item { instruction_id: "nobody's".to_owned(), ..item(3, "FAILED") };
    let three = [one.clone(), two.clone(), unasked];
    assert_eq!(harms(&three, &[&one, &two], &[]), [Harm::Unasked]);

    let failed = [one.clone(), item(2, "FAILED")];
    assert_eq!(harms(&failed, &[&one, &two], &[]), [Harm::FailedYetExecuted]);
    let open = [one.clone(), item(2, "")];
    assert_eq!(harms(&open, &[&one, &two], &[]), [Harm::NotEndedOnce]);
    let ended_twice = [
        one.clone(),
        Item { ends: vec!["FAILED".into(), "DISPATCHED SBX-2".into()], ..two.clone() },
    ];
    assert_eq!(harms(&ended_twice, &[&one, &two], &[]), [Harm::NotEndedOnce]);

    let misnamed = [one.clone(), item(2, "DISPATCHED SBX-7")];
    assert_eq!(harms(&misnamed, &[&one, &two], &[]), [Harm::WrongReference]);
    let dearer = Item { amount: "100.00 EUR".to_owned(), ..two.clone() };
    assert_eq!(harms(&both, &[&one, &dearer], &[]), [Harm::Distorted]);
    assert_eq!(harms(&[one.clone(), dearer.clone()], &[&one, &dearer], &[]), [Harm::Distorted]);

    let gap = [one.clone(), Item { sequence_id: 3, ..two.clone() }];
    assert_eq!(harms(&gap, &[&one, &gap[1]], &[]), [Harm::Gap]);

    let swapped = [item(1, "DISPATCHED SBX-2"), item(2, "DISPATCHED SBX-1")];
    assert_eq!(harms(&swapped, &[&swapped[1], &swapped[0]], &[]), [Harm::Inversion]);
    let passed_over = [Item { skipped: true, ..swapped[0].clone() }, swapped[1].clone()];
    assert_eq!(harms(&passed_over, &[&swapped[1], &swapped[0]], &[]), []);
}
