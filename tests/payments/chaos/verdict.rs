//! The end of a run: everybody leaves, the judge speaks, the figures are printed.

use std::fs;
use std::path::Path;

use symphony::db::Database;
use symphony_lab::judge::{Evidence, Finding, Harm, judge, read_ledger};
use symphony_lab::sandbox::Record;

use super::RAILS;
use super::director::Run;

impl Run {
    /// Fails unless every accepted payment was executed exactly once, or refused and not executed.
    pub async fn conclude(self, log: &Path) {
        let Self { started, ground, sandbox, tally, books, database, fleet, .. } = self;
        for end in fleet.leave().await {
            if end.code() != Some(0) {
                ground.keep();
                panic!("a worker did not leave in good order: {end}, see {}", log.display());
            }
        }
        let faults = sandbox.faults();
        let path = sandbox.record_path().to_owned();
        sandbox.stop().await.unwrap();
        let record = Record::read(&path).unwrap();
        let accepted = books.accepted.lock().unwrap().clone();
        let mut connection = database.pool().acquire().await.unwrap();
        let items = read_ledger(&mut connection).await.unwrap();
        drop(connection);
        let fifo: Vec<_> = RAILS.iter().filter(|r| r.fifo.is_some()).map(|r| r.name).collect();
        let findings = judge(Evidence {
            accepted: &accepted,
            redrives_are_accepted: false,
            items: &items,
            records: std::slice::from_ref(&record),
            fifo_rails: &fifo,
        });
        let figures = database.auditor().payment_figures().await.unwrap();
        let mut complaints = complaints(&database, log).await;
        if !figures.holds() || figures.pending != 0 {
            complaints.push(format!("the ledger does not add up: {figures:?}"));
        }

        let number = |sql: &'static str| {
            let pool = database.pool().clone();
            async move { sqlx::query_scalar::<_, i64>(sql).fetch_one(&pool).await.unwrap() }
        };
        let count = |harm: Harm| findings.iter().filter(|finding| finding.harm == harm).count();
        println!(
            "payments      {} accepted, {} redriven; {} dispatched, {} failed",
            accepted.len(),
            tally.sum("redriven"),
            figures.dispatched,
            figures.failed
        );
        println!(
            "producers     {} repeated, {} rolled back, {} reused keys refused",
            tally.sum("repeated"),
            tally.sum("rolled back"),
            tally.sum("reused key")
        );
        println!("worker kills  {}: {}", tally.sum("kill "), tally.list("kill "));
        println!(
            "pauses        {} past the lease; {} starts in vain",
            tally.sum("pause survived"),
            tally.sum("start in vain")
        );
        println!("server kills  {}", tally.sum("server kill"));
        println!("cut commits   {}: {}", tally.sum("cut "), tally.list("cut "));
        println!("faults        {:?}", faults.injected);
        println!("  of inquiry  {:?}", faults.inquiry_injected);
        println!(
            "zombies       {}",
            number("SELECT count(*) FROM symphony.payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'")
                .await
        );
        println!(
            "unknown       {}",
            number("SELECT count(*) FROM symphony.payment_outbox_attempts WHERE outcome_unknown")
                .await
        );
        println!(
            "parked        {}; {}, {} skipped",
            number(
                "SELECT count(*) FROM symphony.payment_outbox_events WHERE event_type = 'PARKED'"
            )
            .await,
            tally.list("resolved"),
            tally.sum("skipped")
        );
        println!(
            "late outcomes {}",
            number("SELECT count(*) FROM symphony.payment_outbox_events WHERE event_type = 'LATE_OUTCOME'")
                .await
        );
        println!(
            "executed      {} by the provider's record, {} refused",
            record.summary().executed,
            record.summary().refused
        );
        println!("double        {}", count(Harm::Double));
        println!("lost          {}", count(Harm::Lost) + count(Harm::DispatchedNotExecuted));
        println!("inversions    {}", count(Harm::Inversion));
        println!(
            "other harm    {}",
            findings.len()
                - count(Harm::Double)
                - count(Harm::Lost)
                - count(Harm::DispatchedNotExecuted)
                - count(Harm::Inversion)
        );
        println!("seconds       {}", started.elapsed().as_secs());

        if findings.is_empty() && complaints.is_empty() {
            database.pool().close().await;
            if std::env::var_os("SYMPHONY_CHAOS_KEEP").is_some() {
                ground.keep();
            } else {
                ground.clear().await;
            }
            return;
        }
        ground.keep();
        for Finding { outbox_id, .. } in findings.iter().take(5) {
            if let Some(id) = outbox_id {
                show_life(&database, id).await;
            }
        }
        panic!("{findings:#?} {complaints:#?}; everything is kept in {}", ground.folder.display());
    }
}

/// What must never be, whatever the provider says.
async fn complaints(database: &Database, log: &Path) -> Vec<String> {
    let mut connection = database.pool().acquire().await.unwrap();
    let mut complaints = symphony::db::data_checks::contradictions(
        &mut connection,
        &symphony::db::Schema::default(),
        true,
    )
    .await
    .unwrap()
    .contradictions;
    let alarms: Vec<String> = sqlx::query_scalar(
        "SELECT format('%s of %s: %s', event_type, outbox_id, details) FROM symphony.payment_outbox_events \
          WHERE event_type = 'TERMINAL_BLOCKED' OR event_type = 'LATE_OUTCOME' AND (details->>'conflict')::boolean",
    )
    .fetch_all(&mut *connection)
    .await
    .unwrap();
    complaints.extend(alarms);
    let log = fs::read_to_string(log).unwrap_or_default();
    for word in ["panicked", "INTEGRITY_ALARM", "LATE_OUTCOME_CONFLICT"] {
        complaints.extend(log.lines().find(|line| line.contains(word)).map(str::to_owned));
    }
    complaints
}

/// What the ledger tells of one item.
pub async fn show_life(database: &Database, id: &str) {
    let life = database
        .auditor()
        .payment_life(symphony::domain::OutboxId(id.parse().unwrap()))
        .await
        .unwrap();
    println!("{}", serde_json::to_string_pretty(&life).unwrap());
}
