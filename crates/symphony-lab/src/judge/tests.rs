//! The judge is judged: each kind of harm, done on purpose, is found, and nothing else is.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use super::{Accepted, Evidence, Figures, Finding, Harm, Item, judge};
use crate::sandbox::record::BodyHash;
use crate::sandbox::{Execution, Line, Record};

fn item(number: u64, end: &str) -> Item {
    Item {
        outbox_id: number.to_string(),
        rail_key: format!("k{number}"),
        instruction_id: format!("i{number}"),
        participant_id: "acme".to_owned(),
        sequence_id: i64::try_from(number).unwrap(),
        rail_type: "instant".to_owned(),
        redrive_of: None,
        amount: "10.00 EUR".to_owned(),
        pending: end.is_empty(),
        ends: if end.is_empty() { Vec::new() } else { vec![end.to_owned()] },
        skipped: false,
    }
}

/// A redrive of `origin`, in its name.
fn redrive(origin: &Item, number: u64, end: &str) -> Item {
    Item {
        instruction_id: origin.instruction_id.clone(),
        redrive_of: Some(origin.outbox_id.clone()),
        ..item(number, end)
    }
}

/// A record of these items, executed in this order.
fn record(executed: &[&Item]) -> Record {
    let lines = (1..).zip(executed).map(|(number, item)| {
        Line::Executed(Execution {
            number,
            key: item.rail_key.clone(),
            instruction: Some(item.instruction_id.clone()),
            participant: Some(item.participant_id.clone()),
            sequence: Some(item.sequence_id),
            body_sha256: BodyHash::of(b""),
            amount: item.amount.clone(),
            at_ms: number,
        })
    });
    Record { lines: lines.collect(), torn_bytes: 0 }
}

fn accepted(items: &[Item]) -> BTreeMap<String, Accepted> {
    let terms = |item: &Item| Accepted {
        instruction_id: item.instruction_id.clone(),
        participant_id: item.participant_id.clone(),
        rail_type: item.rail_type.clone(),
        amount: "10.00 EUR".to_owned(),
    };
    items.iter().map(|item| (item.outbox_id.clone(), terms(item))).collect()
}

/// What is found, and the figures of it.
fn verdict(
    accepted: &BTreeMap<String, Accepted>,
    items: &[Item],
    executed: &[&Item],
    redrives_are_accepted: bool,
) -> (Vec<Finding>, Figures) {
    let records = [record(executed)];
    let evidence = Evidence {
        accepted,
        redrives_are_accepted,
        items,
        records: &records,
        fifo_rails: &["instant"],
    };
    let findings = judge(evidence);
    let figures = Figures::new(evidence, &findings);
    (findings, figures)
}

/// Kinds of harm in a ledger whose items were all accepted, redrives apart; and `forgotten` ones too.
fn harms(ledger: &[Item], executed: &[&Item], forgotten: &[Item]) -> Vec<Harm> {
    let promised: Vec<Item> = ledger
        .iter()
        .chain(forgotten)
        .filter(|item| item.redrive_of.is_none() && !item.instruction_id.starts_with("nobody"))
        .cloned()
        .collect();
    let (findings, figures) = verdict(&accepted(&promised), ledger, executed, false);
    let mut harms: Vec<_> = findings.into_iter().map(|finding| finding.harm).collect();
    harms.sort();
    harms.dedup();
    assert_eq!(harms.is_empty(), figures.wrong().is_empty(), "{harms:?} {figures:?}");
    harms
}

#[test]
fn what_went_well_is_acquitted() {
    let [one, two, three] =
        [item(1, "DISPATCHED SBX-1"), item(2, "FAILED"), item(3, "DISPATCHED SBX-3")];
    // The second was refused and tried again in its place, as number 4.
    let again = redrive(&two, 4, "DISPATCHED SBX-2");
    let ledger = [one.clone(), two, three.clone(), again.clone()];
    assert_eq!(harms(&ledger, &[&one, &again, &three], &[]), []);
    let (findings, figures) = verdict(&accepted(&ledger), &ledger, &[&one, &again, &three], true);
    assert_eq!((findings, figures.wrong()), (vec![], vec![]));
    assert_eq!((figures.asked, figures.dispatched, figures.failed), (4, 3, 1));
    assert_eq!(figures.executed_once, 3);
}

#[test]
fn each_kind_of_harm_is_found() {
    let [one, two] = [item(1, "DISPATCHED SBX-1"), item(2, "DISPATCHED SBX-2")];
    let both = [one.clone(), two.clone()];
    assert_eq!(harms(&both, &[&one, &two, &two], &[]), [Harm::Double, Harm::Inversion]);
    let paid_again = [one.clone(), two.clone(), redrive(&two, 3, "DISPATCHED SBX-3")];
    let executed = [&one, &two, &paid_again[2]];
    assert_eq!(harms(&paid_again, &executed, &[]), [Harm::Double, Harm::Inversion]);
    assert_eq!(harms(&both, &[&one], &[]), [Harm::DispatchedNotExecuted]);
    assert_eq!(harms(&both, &[&one, &two], &[item(3, "")]), [Harm::Lost]);
    let stranger = item(9, "");
    assert_eq!(harms(&both, &[&one, &two, &stranger], &[]), [Harm::Unasked]);
    let unasked = Item { instruction_id: "nobody's".to_owned(), ..item(3, "FAILED") };
    let three = [one.clone(), two.clone(), unasked];
    assert_eq!(harms(&three, &[&one, &two], &[]), [Harm::Unasked]);

    let failed = [one.clone(), item(2, "FAILED")];
    assert_eq!(harms(&failed, &[&one, &two], &[]), [Harm::FailedYetExecuted]);
    let open = [one.clone(), item(2, "")];
    assert_eq!(harms(&open, &[&one, &two], &[]), [Harm::NotEnded]);
    let vanished = [one.clone(), Item { pending: false, ..item(2, "") }];
    assert_eq!(harms(&vanished, &[&one, &two], &[]), [Harm::Lost]);
    let ended_twice = [
        one.clone(),
        Item { ends: vec!["FAILED".into(), "DISPATCHED SBX-2".into()], ..two.clone() },
    ];
    assert_eq!(harms(&ended_twice, &[&one, &two], &[]), [Harm::EndedTwice]);

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

#[test]
fn a_redrive_nobody_was_told_of_is_found_where_redrives_are_accepted_too() {
    let two = item(2, "FAILED");
    let ledger = [item(1, "DISPATCHED SBX-1"), two.clone(), redrive(&two, 3, "DISPATCHED SBX-2")];
    let executed = [&ledger[0], &ledger[2]];
    let mut promised = accepted(&ledger);
    assert_eq!(verdict(&promised, &ledger, &executed, true).1.wrong(), Vec::<&str>::new());
    promised.remove("3");
    assert_eq!(verdict(&promised, &ledger, &executed, true).1.wrong(), ["never asked for"]);
    assert_eq!(verdict(&promised, &ledger, &executed, false).1.wrong(), Vec::<&str>::new());
}

/// Three payments: two executed in order, one FAILED.
struct World {
    accepted: BTreeMap<String, Accepted>,
    items: Vec<Item>,
    executed: Vec<Item>,
}

fn honest() -> World {
    let items = vec![item(1, "DISPATCHED SBX-1"), item(2, "DISPATCHED SBX-2"), item(3, "FAILED")];
    World { accepted: accepted(&items), executed: items[..2].to_vec(), items }
}

fn wrong(world: &World) -> Vec<&'static str> {
    let executed: Vec<&Item> = world.executed.iter().collect();
    verdict(&world.accepted, &world.items, &executed, true).1.wrong()
}

#[test]
fn every_kind_of_lie_in_ledger_or_record_is_named_by_the_figures() {
    type Lie = (&'static str, fn(&mut World));
    let lies: [Lie; 15] = [
        ("executed twice", |world| world.executed.push(world.items[0].clone())),
        ("executed twice", |world| {
            // A redrive, under a key of its own, of a payment that had been executed.
            let again = redrive(&world.items[0], 4, "DISPATCHED SBX-3");
            world.accepted.extend(accepted(std::slice::from_ref(&again)));
            world.items.push(again.clone());
            world.executed.push(again);
        }),
        ("executed though FAILED", |world| world.executed.push(world.items[2].clone())),
        ("DISPATCHED but not executed", |world| drop(world.executed.pop())),
        ("executed and DISPATCHED differ", |world| drop(world.executed.pop())),
        ("another amount or reference", |world| {
            world.items[0].amount = "10.01 EUR".to_owned();
        }),
        ("another amount or reference", |world| {
            world.items[0].ends = vec!["DISPATCHED SBX-2".to_owned()];
        }),
        ("never asked for", |world| world.executed.push(item(9, ""))),
        ("never asked for", |world| assert!(world.accepted.remove("1").is_some())),
        ("lost", |world| world.accepted.extend(accepted(&[item(9, "")]))),
        ("lost", |world| world.items[2].ends.clear()),
        ("ended twice", |world| world.items[0].ends.push("FAILED".to_owned())),
        ("gaps", |world| world.items[2].sequence_id = 4),
        ("order inversions", |world| world.executed.reverse()),
        ("payments are still pending", |world| world.items[2] = item(3, "")),
    ];
    assert_eq!(wrong(&honest()), Vec::<&str>::new());
    for (expected, lie) in lies {
        let mut world = honest();
        lie(&mut world);
        assert!(wrong(&world).contains(&expected), "{expected}: {:?}", wrong(&world));
    }
    let nothing = World { accepted: BTreeMap::new(), items: Vec::new(), executed: Vec::new() };
    assert_eq!(wrong(&nothing), ["nothing was paid"]);
}

#[test]
fn each_wrong_figure_alone_is_enough_to_say_no() {
    let right =
        Figures { asked: 3, dispatched: 2, failed: 1, executed_once: 2, ..Figures::default() };
    assert!(right.wrong().is_empty());
    for (name, wrong) in [
        ("asked", Figures { asked: 4, ..right }),
        ("dispatched", Figures { dispatched: 1, ..right }),
        ("failed", Figures { failed: 2, ..right }),
        ("pending", Figures { pending: 1, ..right }),
        ("executed_once", Figures { executed_once: 1, ..right }),
        ("executed_twice", Figures { executed_twice: 1, ..right }),
        ("executed_though_failed", Figures { executed_though_failed: 1, ..right }),
        ("dispatched_not_executed", Figures { dispatched_not_executed: 1, ..right }),
        ("other_terms", Figures { other_terms: 1, ..right }),
        ("never_asked", Figures { never_asked: 1, ..right }),
        ("lost", Figures { lost: 1, ..right }),
        ("ended_twice", Figures { ended_twice: 1, ..right }),
        ("gaps", Figures { gaps: 1, ..right }),
        ("order_inversions", Figures { order_inversions: 1, ..right }),
        ("nothing", Figures::default()),
    ] {
        assert!(!wrong.wrong().is_empty(), "{name}");
    }
}

#[test]
fn a_redrive_takes_its_origins_place_in_the_order() {
    // The second failed, was redriven as number 4 and executed there, before the third.
    let two = item(2, "FAILED");
    let four = redrive(&two, 4, "DISPATCHED SBX-2");
    let items = vec![item(1, "DISPATCHED SBX-1"), two, item(3, "DISPATCHED SBX-3"), four];
    let executed = vec![items[0].clone(), items[3].clone(), items[2].clone()];
    let world = World { accepted: accepted(&items), items, executed };
    assert_eq!(wrong(&world), Vec::<&str>::new());
}
