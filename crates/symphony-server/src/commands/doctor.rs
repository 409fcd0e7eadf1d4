//! `symphony doctor`: is everything as declared?

use std::process::ExitCode;

use serde::Serialize;
use sqlx::{Connection as _, PgConnection};
use symphony::db::inspect::{self, ServerFacts};
use symphony::db::migrate::{self, State};

use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;

/// Supported servers.
const VERSIONS: std::ops::RangeInclusive<i32> = 15..=18;
/// A snapshot older than this keeps finished items in the queue's indexes.
const OLD_SNAPSHOT_SECONDS: i64 = 300;

/// How one check ended, worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Check {
    verdict: Verdict,
    subject: &'static str,
    finding: String,
}

pub(super) async fn run(global: &Global) -> Result<ExitCode, Failure> {
    let server = Server::open(global).await?;
    let result = match server.connect().await {
        Ok(mut connection) => {
            let checks = examine(&mut connection).await;
            connection.close().await?;
            checks
        }
        Err(failure) => Err(failure),
    };
    server.close().await?;
    let checks = result?;
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
    if global.json {
        output::json(&checks)?;
    } else {
        for check in &checks {
            output::print(&format!(
                "{:<5}{:<12} {}\n",
                format!("{:?}", check.verdict).to_uppercase(),
                check.subject,
                check.finding
            ))?;
        }
    }
    Ok(if worst == Verdict::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn examine(connection: &mut PgConnection) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    let facts = inspect::server_facts(connection).await?;
    examine_server(&facts, &mut checks);

    let state = migrate::check(connection).await?;
    checks.push(Check {
        verdict: if state == State::UpToDate { Verdict::Ok } else { Verdict::Fail },
        subject: "schema",
        finding: super::migrate::describe(state).to_owned(),
    });
    if matches!(state, State::NotInstalled | State::TablesDiffer | State::Newer) {
        return Ok(checks);
    }

    let differences = inspect::privilege_differences(connection).await?;
    if differences.is_empty() {
        checks.push(ok("privileges", "every role has exactly what is declared"));
    }
    for difference in differences {
        checks.push(Check {
            verdict: Verdict::Fail,
            subject: "privileges",
            finding: format!(
                "{} {} {} on {}",
                difference.role,
                if difference.excess { "has" } else { "lacks" },
                difference.privilege,
                difference.object
            ),
        });
    }

    let access = inspect::owner_access(connection).await?;
    if access.is_empty() {
        checks.push(ok("owner", "nobody but a superuser can become symphony_control"));
    }
    for access in access {
        checks.push(Check {
            verdict: if access.how == "member" { Verdict::Fail } else { Verdict::Warn },
            subject: "owner",
            finding: format!(
                "{} can become symphony_control ({}) and switch the ledger's guards off",
                access.role, access.how
            ),
        });
    }

    for table in inspect::bloat(connection).await? {
        let bloated = table.dead_rows > 100_000 && table.dead_rows > table.live_rows;
        checks.push(Check {
            verdict: if bloated { Verdict::Warn } else { Verdict::Ok },
            subject: "bloat",
            finding: format!(
                "{}: {} rows alive, {} dead, {} kB",
                table.table_name,
                table.live_rows,
                table.dead_rows,
                table.bytes / 1024
            ),
        });
    }
    let violated = inspect::violated_invariants(connection).await?;
    if violated.is_empty() {
        checks.push(ok(
            "invariants",
            "no gap in a stream, no ended item pending, no lane that stands still",
        ));
    }
    checks.extend(violated.into_iter().map(|finding| Check {
        verdict: Verdict::Fail,
        subject: "invariants",
        finding,
    }));
    Ok(checks)
}

fn ok(subject: &'static str, finding: &str) -> Check {
    Check { verdict: Verdict::Ok, subject, finding: finding.to_owned() }
}

fn examine_server(facts: &ServerFacts, checks: &mut Vec<Check>) {
    let mut judge = |holds: bool, otherwise: Verdict, finding: String| {
        checks.push(Check {
            verdict: if holds { Verdict::Ok } else { otherwise },
            subject: "server",
            finding,
        });
    };
    judge(
        VERSIONS.contains(&(facts.version_num / 10_000)),
        Verdict::Warn,
        format!("PostgreSQL {} (15 to 18 are tested)", facts.version),
    );
    for (name, value) in [("fsync", &facts.fsync), ("full_page_writes", &facts.full_page_writes)] {
        judge(
            value == "on",
            Verdict::Fail,
            format!(
                "{name} = {value}{}",
                advice(value == "on", "a crash can lose or corrupt payments; set it to on")
            ),
        );
    }
    let durable = facts.synchronous_commit != "off";
    judge(
        durable,
        Verdict::Fail,
        format!(
            "synchronous_commit = {}{}",
            facts.synchronous_commit,
            advice(durable, "a crash can undo an answered commit and pay twice; set it to on")
        ),
    );
    judge(
        facts.autovacuum == "on",
        Verdict::Warn,
        format!(
            "autovacuum = {}{}",
            facts.autovacuum,
            advice(facts.autovacuum == "on", "dead rows slow every claim")
        ),
    );
    judge(facts.encoding == "UTF8", Verdict::Fail, format!("encoding {}", facts.encoding));
    let young = facts.oldest_snapshot_seconds < OLD_SNAPSHOT_SECONDS;
    judge(
        young,
        Verdict::Warn,
        format!(
            "oldest snapshot held for {} s{}",
            facts.oldest_snapshot_seconds,
            advice(young, "it keeps finished items in the queue's indexes; end that transaction")
        ),
    );
}

fn advice(holds: bool, advice: &str) -> String {
    if holds { String::new() } else { format!(": {advice}") }
}
