//! The end of the demo: what happened, one payment's life, the proof.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::judge::Figures;
use crate::sandbox::Record;
use chrono::{DateTime, Utc};
use serde::Serialize;
use symphony::db::Database;

use super::events::EventProof;
use super::ledger::{self, Doubt, Progress};
use super::operator::PERSON;
use super::orders::OrderProof;
use super::producers::STORY;
use super::story::{Story, grouped, seconds};
use crate::LabError;
use crate::host::Tone;

/// What the killed worker left behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kill {
    pub(super) process: u32,
    pub(super) at: DateTime<Utc>,
    pub(super) held: i64,
    pub(super) recovered_after: Duration,
}

/// The demo in figures, for scripts too.
#[derive(Debug, Serialize)]
pub struct Report {
    holds: bool,
    wrong: Vec<&'static str>,
    duration_ms: u64,
    proof: Figures,
    events: EventProof,
    orders: OrderProof,
    happened: Happened,
    /// Faults of the banks, by kind.
    faults: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct Happened {
    /// Outcomes "surely not executed", sent again later.
    retried: i64,
    /// Outcomes nobody knew.
    unknown: i64,
    /// Payments in doubt at some time, the killed worker's included.
    doubted: u64,
    /// Of those: the bank had executed them, so that sending again would have been a second payment.
    doubted_but_executed: u64,
    /// Payments in the killed worker's hands.
    killed_worker_held: i64,
    /// Of those requeued: the bank had executed them before the kill.
    killed_worker_executed: u64,
    /// Payments settled or redriven by a person.
    acts: i64,
    /// From the kill until the last of them was with another worker, or ready for one.
    recovery_ms: u64,
}

impl Report {
    pub(super) fn new(
        took: Duration,
        (proof, events, orders): (Figures, EventProof, OrderProof),
        doubts: &[Doubt],
        banks: &[Record],
        progress: &Progress,
        kill: Kill,
        faults: BTreeMap<String, u64>,
    ) -> Self {
        let executed_at: HashMap<&str, u64> = banks
            .iter()
            .flat_map(Record::executions)
            .map(|execution| (execution.key.as_str(), execution.at_ms))
            .collect();
        let executed_by = |doubt: &Doubt, at: DateTime<Utc>| {
            let by = u64::try_from(at.timestamp_millis()).unwrap_or(0);
            executed_at.get(doubt.rail_key.as_str()).is_some_and(|at_ms| *at_ms <= by)
        };
        let count = |holds: &dyn Fn(&Doubt) -> bool| {
            doubts.iter().filter(|doubt| holds(doubt)).map(|_| 1_u64).sum()
        };
        let happened = Happened {
            retried: progress.retried,
            unknown: progress.unknown,
            doubted: count(&|_| true),
            doubted_but_executed: count(&|doubt| executed_by(doubt, doubt.at)),
            killed_worker_held: kill.held,
            killed_worker_executed: count(&|doubt| doubt.requeued && executed_by(doubt, kill.at)),
            acts: progress.acts,
            recovery_ms: milliseconds(kill.recovered_after),
        };
        let duration_ms = milliseconds(took);
        let wrong = [proof.wrong(), events.wrong(), orders.wrong()].concat();
        Self {
            holds: wrong.is_empty(),
            wrong,
            duration_ms,
            proof,
            events,
            orders,
            happened,
            faults,
        }
    }

    /// Everybody's records agree with the ledger.
    pub fn holds(&self) -> bool {
        self.holds
    }

    pub(super) async fn tell(
        &self,
        story: &Story<'_>,
        database: &Database,
    ) -> Result<(), LabError> {
        self.tell_what_happened(story)?;
        story.heading(&format!("The life of {STORY}, from the ledger alone"))?;
        for item in database.auditor().find_payments(STORY).await? {
            if let Some(life) = database.auditor().payment_life(item).await? {
                story.write(&story.host.payment_life(&life))?;
            }
        }
        if let Some(root) = ledger::whole_order(database).await? {
            story.heading("One order, from its request to its receipt: what fired what")?;
            story.write(&story.host.execution_tree(&database.auditor(), root).await?)?;
        }
        self.tell_the_proof(story)
    }

    fn tell_what_happened(&self, story: &Story<'_>) -> Result<(), LabError> {
        let Self { happened, proof, faults, .. } = self;
        story.heading("What happened")?;
        let line = |number: String, text: String| {
            story.write(&story.host.hanging(&format!("{number:>8}  "), &text))
        };
        line(
            grouped(proof.asked),
            format!(
                "payments: {} dispatched, {} failed",
                grouped(proof.dispatched),
                grouped(proof.failed)
            ),
        )?;
        let struck: u64 = faults.values().sum();
        let kinds: Vec<_> = faults.iter().map(|(kind, times)| format!("{kind} {times}")).collect();
        line(grouped(struck), "times a bank was slow, failed or refused:".to_owned())?;
        for kinds in kinds.chunks(6) {
            line(String::new(), kinds.join(", "))?;
        }
        line(grouped(happened.retried), "times surely not executed: sent again later".to_owned())?;
        line(
            grouped(happened.unknown),
            format!(
                "outcomes unknown: no answer, a broken connection, garbage; {} payments were asked about, and {} of them \
                 turned out to be executed: no answer is not a failure",
                grouped(happened.doubted),
                grouped(happened.doubted_but_executed)
            ),
        )?;
        line(
            "1".to_owned(),
            format!(
                "worker killed with {} payments in its hands, {} of them already executed; recovered in {}",
                happened.killed_worker_held,
                happened.killed_worker_executed,
                seconds(Duration::from_millis(happened.recovery_ms))
            ),
        )?;
        line(
            grouped(happened.acts),
            format!("payments needed a person: {PERSON}, whose acts and reasons are in the ledger"),
        )?;
        let events = &self.events;
        line(
            grouped(events.told),
            format!(
                "events published as signed webhooks; the receiver failed {} times, and heard {} of them again",
                grouped(events.faults),
                grouped(events.repeated)
            ),
        )?;
        let orders = &self.orders;
        line(
            grouped(orders.accepted),
            format!(
                "orders over HTTP, {} runs of scripts and mail; {} were lost with their worker, {} requests were \
                 repeated, {} receipts came again under the same Message-ID",
                grouped(orders.runs),
                grouped(orders.worker_lost),
                grouped(orders.asked_again),
                grouped(orders.delivered_again)
            ),
        )
    }

    fn tell_the_proof(&self, story: &Story<'_>) -> Result<(), LabError> {
        let (proof, events, orders) = (&self.proof, &self.events, &self.orders);
        story.heading("The proof: the banks', the receiver's and the mailbox's own records against the ledger")?;
        for (number, text, right) in [
            (proof.asked, "payments asked for", proof.asked > 0),
            (
                proof.executed_once,
                "executed exactly once, and DISPATCHED",
                proof.executed_once == proof.dispatched,
            ),
            (
                proof.failed,
                "FAILED, and not executed",
                proof.dispatched + proof.failed == proof.asked,
            ),
            (proof.executed_twice, "executed twice", proof.executed_twice == 0),
            (
                proof.executed_though_failed,
                "executed though FAILED",
                proof.executed_though_failed == 0,
            ),
            (
                proof.dispatched_not_executed,
                "DISPATCHED but never executed",
                proof.dispatched_not_executed == 0,
            ),
            (
                proof.other_terms,
                "with another amount or reference than the bank's",
                proof.other_terms == 0,
            ),
            (proof.never_asked, "that nobody asked for", proof.never_asked == 0),
            (proof.lost + proof.pending, "lost or left over", proof.lost + proof.pending == 0),
            (proof.ended_twice, "ended twice", proof.ended_twice == 0),
            (proof.gaps, "gaps in the merchants' numbers", proof.gaps == 0),
            (
                proof.order_inversions,
                "overtaken on the rail with a strict order",
                proof.order_inversions == 0,
            ),
            (events.told, "events told, and published", events.published == events.told),
            (events.arrived, "of them in the receiver's own record", events.arrived == events.told),
            (events.lost, "events lost", events.lost == 0),
            (
                events.overtaken,
                "events overtaken by a later one of their key",
                events.overtaken == 0,
            ),
            (events.strange, "events nobody told, or with a bad signature", events.strange == 0),
            (orders.accepted, "orders accepted over HTTP", orders.accepted > 0),
            (
                orders.receipts,
                "of them with exactly one receipt by mail",
                orders.receipts == orders.accepted,
            ),
            (orders.entries, "of them kept as ordered", orders.entries == orders.accepted),
            (orders.strange, "receipts or entries nobody ordered", orders.strange == 0),
            (orders.pending, "items of the app left over", orders.pending == 0),
        ] {
            let tone = if right { Tone::Good } else { Tone::Bad };
            let number = story.host.toned(tone, &format!("{:>8}", grouped(number)));
            story.write(&format!("{number}  {text}\n"))?;
        }
        let took = seconds(Duration::from_millis(self.duration_ms));
        let end = if self.holds {
            story.host.toned(
                Tone::Good,
                &format!(
                    "No money moved twice, none was lost, every event arrived in order, every order has its one receipt ({took})."
                ),
            )
        } else {
            story.host.toned(Tone::Bad, &format!("IT DOES NOT HOLD: {}.", self.wrong.join(", ")))
        };
        story.write(&format!("\n{end}\n"))?;
        story.write(
            "\nNow yours: `symphony up`. Its first line opens the console in your browser.\n",
        )
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
