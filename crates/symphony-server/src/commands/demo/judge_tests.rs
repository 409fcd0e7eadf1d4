//! A judge that cannot say no is worthless: every kind of wrong, one line each.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use symphony_connect::sandbox::record::BodyHash;
use symphony_connect::sandbox::{Execution, Line, Record};

use super::judge::{Figures, compare};
use super::ledger::Item;

fn dispatched(key: &str, sequence_id: i64, reference: &str) -> Item {
    Item {
        outbox_id: key.to_owned(),
        key: key.to_owned(),
        instruction_id: format!("invoice-{key}"),
        participant_id: "acme".to_owned(),
        rail_type: "instant".to_owned(),
        sequence_id,
        place: sequence_id,
        amount: "10.00 EUR".to_owned(),
        pending: false,
        dispatched: 1,
        failed: 0,
        reference: Some(reference.to_owned()),
        requeued: false,
        doubted_at: None,
    }
}

fn executed(number: u64, key: &str) -> Line {
    Line::Executed(Execution {
        number,
        key: key.to_owned(),
        instruction: None,
        participant: None,
        sequence: None,
        body_sha256: BodyHash::of(b""),
        amount: "10.00 EUR".to_owned(),
        at_ms: number,
    })
}

/// Three payments: two executed in order, one FAILED.
struct World {
    accepted: BTreeSet<String>,
    items: Vec<Item>,
    lines: Vec<Line>,
}

fn honest() -> World {
    let mut items =
        vec![dispatched("a", 1, "SBX-1"), dispatched("b", 2, "SBX-2"), dispatched("c", 3, "")];
    if let Some(failed) = items.last_mut() {
        (failed.dispatched, failed.failed, failed.reference) = (0, 1, None);
    }
    World {
        accepted: ["a", "b", "c"].map(str::to_owned).into(),
        items,
        lines: vec![executed(1, "a"), executed(2, "b")],
    }
}

fn verdict(world: World) -> Figures {
    let bank = Record { lines: world.lines, torn_bytes: 0 };
    compare(&world.accepted, &world.items, &[bank], "instant")
}

#[test]
fn an_honest_world_holds() {
    let figures = verdict(honest());
    assert_eq!(figures.wrong(), Vec::<&str>::new());
    assert_eq!((figures.asked, figures.dispatched, figures.failed), (3, 2, 1));
    assert_eq!(figures.executed_once, 2);
}

#[test]
fn every_kind_of_lie_in_ledger_or_record_is_found_and_named() {
    type Lie = (&'static str, fn(&mut World));
    let lies: [Lie; 15] = [
        ("executed twice", |world| world.lines.push(executed(3, "a"))),
        ("executed twice", |world| {
            // A redrive, under a key of its own, of a payment that had been executed.
            let mut redrive = dispatched("d", 4, "SBX-3");
            redrive.instruction_id = "invoice-a".to_owned();
            world.items.push(redrive);
            world.accepted.insert("d".to_owned());
            world.lines.push(executed(3, "d"));
        }),
        ("executed though FAILED", |world| world.lines.push(executed(3, "c"))),
        ("DISPATCHED but not executed", |world| drop(world.lines.pop())),
        ("executed and DISPATCHED differ", |world| drop(world.lines.pop())),
        ("another amount or reference", |world| {
            world.items.first_mut().unwrap().amount = "10.01 EUR".to_owned();
        }),
        ("another amount or reference", |world| {
            world.items.first_mut().unwrap().reference = Some("SBX-2".to_owned());
        }),
        ("never asked for", |world| world.lines.push(executed(3, "stranger"))),
        ("never asked for", |world| assert!(world.accepted.remove("a"))),
        ("lost", |world| assert!(world.accepted.insert("promised".to_owned()))),
        ("lost", |world| world.items.last_mut().unwrap().failed = 0),
        ("ended twice", |world| world.items.first_mut().unwrap().failed = 1),
        ("gaps", |world| world.items.last_mut().unwrap().sequence_id = 4),
        ("order inversions", |world| {
            world.lines = vec![executed(1, "b"), executed(2, "a")];
        }),
        ("payments are still pending", |world| {
            let last = world.items.last_mut().unwrap();
            (last.failed, last.pending) = (0, true);
        }),
    ];
    for (expected, lie) in lies {
        let mut world = honest();
        lie(&mut world);
        let figures = verdict(world);
        assert!(
            !figures.wrong().is_empty() && figures.wrong().contains(&expected),
            "{expected}: {figures:?}"
        );
    }
    let nothing = World { accepted: BTreeSet::new(), items: Vec::new(), lines: Vec::new() };
    assert_eq!(verdict(nothing).wrong(), ["nothing was paid"]);
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
    let mut world = honest();
    // c failed in second place, was redriven as d and executed there, before b.
    for (item, sequence) in world.items.iter_mut().zip([1, 3, 2]) {
        (item.sequence_id, item.place) = (sequence, sequence);
    }
    let mut redrive = dispatched("d", 4, "SBX-2");
    (redrive.instruction_id, redrive.place) = ("invoice-c".to_owned(), 2);
    world.items.push(redrive);
    world.items.get_mut(1).unwrap().reference = Some("SBX-3".to_owned());
    world.accepted.insert("d".to_owned());
    world.lines = vec![executed(1, "a"), executed(2, "d"), executed(3, "b")];
    assert_eq!(verdict(world).wrong(), Vec::<&str>::new());
}
