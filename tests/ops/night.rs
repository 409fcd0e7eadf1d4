//! A night in a real Prometheus: each fault in turn; the alarm that should fire fires, and no other.

use std::time::Instant;

use regex_lite::Regex;
use symphony::domain::Outcome;
use symphony_connect::buses::conformance::Condition;

use super::file;
use super::stage::Stage;
use crate::consumers::program::Program;
use crate::support::brokers::required_or_skip;
use crate::support::prometheus::prometheus_or_skip;
use crate::support::shell::dana;
use crate::support::{payment, until};

/// The same expressions; only how long they must hold is shortened, a minute to four seconds.
fn shortened() -> String {
    let minutes = Regex::new(r"for: ([1-9][0-9]*)m").unwrap();
    let shorter = |found: &regex_lite::Captures<'_>| {
        format!("for: {}s", 4 * found[1].parse::<u32>().unwrap())
    };
    minutes.replace_all(&file("ops/prometheus/symphony.rules.yml"), shorter).into_owned()
}

/// Wait until this alarm fires, and fail if another one does.
async fn fires(stage: &Stage, fault: &str, alarm: &str) {
    let started = Instant::now();
    until(&format!("{fault}: {alarm} fires"), async || {
        let firing = stage.prometheus.firing().await;
        assert!(firing.iter().all(|name| name == alarm), "{fault}: {firing:?} fire");
        !firing.is_empty()
    })
    .await;
    println!("{fault}: {alarm} after {:.1} s", started.elapsed().as_secs_f32());
}

async fn is_quiet(stage: &Stage, after: &str) {
    let mut last = Vec::new();
    until(&format!("nothing fires after {after}"), async || {
        let firing = stage.prometheus.firing().await;
        if firing != last {
            println!("after {after}: {firing:?}");
        }
        last = firing;
        last.is_empty()
    })
    .await;
}

#[tokio::test]
#[ignore = "a minute or two: scripts/test --long"]
async fn a_night_of_faults_fires_each_alarm_and_no_other() {
    required_or_skip!();
    prometheus_or_skip!();
    let program = Program { fails: Some(666), ..Program::default() };
    let mut stage = Stage::new(&shortened(), program).await;
    let (mut first, second) = (stage.worker().await, stage.worker().await);
    stage.scrape(&[&first, &second]);
    stage.pay(10).await;
    stage.tell(0..10, 0).await;
    stage.until_paid().await;
    stage.until_applied(9).await;
    // Before the first scrapes nobody is there, which is an alarm.
    until("all are scraped", async || stage.prometheus.query("up == 1").await.len() == 3).await;
    is_quiet(&stage, "the start").await;

    first.child.kill().await.unwrap();
    fires(&stage, "a worker is killed", "SymphonyProcessDown").await;
    let first = stage.worker().await;
    stage.scrape(&[&first, &second]);
    is_quiet(&stage, "another worker").await;

    stage.bank.make(Condition::Down).await;
    stage.pay(5).await;
    fires(&stage, "the rail is down", "SymphonyRailDown").await;
    stage.bank.make(Condition::Well).await;
    stage.until_paid().await;
    is_quiet(&stage, "the rail's return").await;

    stage.broker.kill().await;
    stage.tell(20..25, 0).await;
    fires(&stage, "the broker is down", "SymphonyBusDown").await;
    stage.broker.restart().await;
    stage.until_applied(24).await;
    is_quiet(&stage, "the broker's return").await;

    stage.database.make(Condition::Down).await;
    fires(&stage, "the database is away", "SymphonyDatabaseDown").await;
    stage.database.make(Condition::Well).await;
    stage.pay(1).await;
    stage.until_paid().await;
    is_quiet(&stage, "the database's return").await;

    // A handler fails on an event of a while ago.
    stage.tell(666..667, 90).await;
    fires(&stage, "a consumer fails", "SymphonyConsumerLag").await;
    // Mended: as if the program had another version.
    let mended = (204, None);
    stage.program.answers.lock().unwrap().push(mended);
    is_quiet(&stage, "the consumer's return").await;

    // Of a rail that no worker here serves.
    let parked =
        stage.db.ended(&payment("lost", "acme", "phone"), "TIMEOUT", Outcome::Unknown).await;
    fires(&stage, "a payment is parked", "SymphonyParkedItems").await;
    let line = format!("resolve {parked} --as dispatched --reference R1 --reason statement --yes");
    let resolved = dana(&stage.db, &line).await;
    assert!(resolved.ok, "{}", resolved.output);
    is_quiet(&stage, "the decision").await;

    // All workers are gone: that is one alarm, and not one for each process.
    drop((first, second));
    fires(&stage, "no worker is left", "SymphonyNoWorker").await;
}
