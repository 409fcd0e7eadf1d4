//! `symphony doctor`: is everything as declared?

use std::process::ExitCode;

use serde::Serialize;
use sqlx::Connection as _;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use symphony::db::catalog::{self, environment};
use symphony::db::inspect::{self, Bloat, ServerFacts};
use symphony::db::migrate::{self, MigrateError, State};
use symphony::db::{
    Database, DbError, Hints, SERVER_RECORD, Schema, ServerRecord, Session, UNSERVED, Unserved,
    data_checks,
};
use symphony::lanes::payments::RailSetup;

use super::attention;
use super::suggested_command::symphony;
use crate::bounds::{DEAD_ROWS_MAX, DELAY_SECONDS_MAX, OLD_SNAPSHOT_SECONDS};
use crate::cli::Global;
use crate::config::Config;
use crate::output::{self, Failure};
use crate::server::Server;
use crate::worker::{self, Plan};

/// Supported servers.
const VERSIONS: std::ops::RangeInclusive<i32> = 15..=18;

/// How long a hint to ourselves may take.
const PROBE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// How one check ended, worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum CheckResult {
    Ok,
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Check {
    verdict: CheckResult,
    subject: &'static str,
    finding: String,
}

pub(super) async fn run(global: &Global, deep: bool) -> Result<ExitCode, Failure> {
    let server = Server::open(global).await?;
    let schema = server.schema();
    let result = match server.look(async |c| examine(c, schema, deep).await).await {
        Ok(mut checks) => examine_workers(global, &server, &mut checks).await.map(|()| checks),
        failed => failed,
    };
    server.close().await?;
    let checks = result?;
    let worst = checks.iter().map(|check| check.verdict).max().unwrap_or(CheckResult::Ok);
    if global.json {
        output::json(&checks)?;
    } else {
        for check in &checks {
            let verdict = format!("{:?}", check.verdict).to_uppercase();
            let padded = output::state(&format!("{verdict:<5}"));
            let lead = format!("{padded}{:<12} ", check.subject);
            output::print_verbatim(&output::hanging(&lead, &output::plain(&check.finding)))?;
        }
    }
    Ok(if worst == CheckResult::Fail { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn examine(
    connection: &mut PgConnection,
    schema: &Schema,
    deep: bool,
) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    let facts = inspect::server_facts(connection).await?;
    examine_server(&facts, &mut checks);

    let (state, differences) = migrate::check(connection, schema).await?;
    checks.push(Check {
        verdict: if state == State::UpToDate { CheckResult::Ok } else { CheckResult::Fail },
        subject: "schema",
        finding: super::migrate::describe(state),
    });
    checks.extend(differences.iter().map(|difference| Check {
        verdict: if difference.is_harmless() { CheckResult::Warn } else { CheckResult::Fail },
        subject: "schema",
        finding: difference.to_string(),
    }));
    let foreign = catalog::foreign_objects(connection, schema).await?;
    let unreadable = !foreign.is_empty()
        || differences
            .iter()
            .any(|d| d.found.is_none() && (d.kind == "relation" || d.kind == "column"));
    checks.extend(
        foreign
            .into_iter()
            .map(|object| fail("schema", format!("{object}: bears our name and is not ours"))),
    );
    let around = environment::findings(connection, schema).await?;
    if around.is_empty() {
        checks.push(ok(
            "around",
            "no setting, predefined role or event trigger reaches into the schema",
        ));
    }
    checks.extend(around.into_iter().map(|found| Check {
        verdict: if found.fails { CheckResult::Fail } else { CheckResult::Warn },
        subject: "around",
        finding: found.finding,
    }));
    if matches!(state, State::NotInstalled | State::TablesDiffer | State::Newer) {
        return Ok(checks);
    }

    let differences = inspect::privilege_differences(connection, schema).await?;
    if differences.is_empty() {
        checks.push(ok("privileges", "every role has exactly what is declared"));
    }
    for difference in differences {
        checks.push(Check {
            verdict: if difference.is_reading_by_others() {
                CheckResult::Warn
            } else {
                CheckResult::Fail
            },
            subject: "privileges",
            finding: difference.to_string(),
        });
    }

    let access = inspect::owner_access(connection).await?;
    if access.is_empty() {
        checks.push(ok("owner", "nobody but a superuser can become symphony_control"));
    }
    for access in access {
        checks.push(Check {
            verdict: if access.how == "member" { CheckResult::Fail } else { CheckResult::Warn },
            subject: "owner",
            finding: format!(
                "{} can become symphony_control ({}) and switch the ledger's guards off",
                access.role, access.how
            ),
        });
    }

    checks.extend(inspect::token_makers_who_act(connection).await?.into_iter().map(|login| {
        let finding = format!(
            "{login} has symphony_auth and acts itself: with tokens for two persons it could ask and approve alone; give \
             symphony_auth to a login that has nothing else"
        );
        warn("tokens", finding)
    }));
    let tables = inspect::bloat(connection, schema).await?;
    checks.extend(bloat(&tables));
    // A table that is gone or another's would only make the questions fail; the schema's own lines say it.
    if !unreadable {
        examine_identity(connection, schema, &mut checks).await?;
        examine_producers(connection, schema, &mut checks).await?;
        examine_data(connection, schema, deep, &mut checks).await?;
    }
    Ok(checks)
}

/// One line for all hot tables, and one for each that has too many dead rows.
fn bloat(tables: &[Bloat]) -> Vec<Check> {
    let bloated: Vec<Check> = tables
        .iter()
        .filter(|table| table.dead_rows > DEAD_ROWS_MAX && table.dead_rows > table.live_rows)
        .map(|table| {
            let Bloat { table_name, live_rows, dead_rows, bytes } = table;
            let finding = format!(
                "{table_name}: {live_rows} rows alive, {dead_rows} dead, {} kB",
                bytes / 1024
            );
            warn("bloat", finding)
        })
        .collect();
    if !bloated.is_empty() {
        return bloated;
    }
    let sum = |of: fn(&Bloat) -> i64| tables.iter().map(of).sum::<i64>();
    vec![ok(
        "bloat",
        &format!(
            "{} hot tables of all lanes: {} rows alive, {} dead, {} kB",
            tables.len(),
            sum(|table| table.live_rows),
            sum(|table| table.dead_rows),
            sum(|table| table.bytes) / 1024
        ),
    )]
}

/// Producers of events that stay open: what was told after them is not published before they end.
async fn examine_producers(
    connection: &mut PgConnection,
    schema: &Schema,
    checks: &mut Vec<Check>,
) -> Result<(), Failure> {
    let mut transaction = connection.begin().await?;
    migrate::become_reader(&mut transaction, schema).await?;
    let found = inspect::open_producers(&mut transaction, schema).await;
    transaction.rollback().await?;
    let found = match found {
        // Whoever only enqueues need not know of others.
        Err(DbError::MissingPrivilege { .. }) => return Ok(()),
        found => found?,
    };
    for open in found {
        let Some(seconds) = open.delays_seconds.filter(|seconds| *seconds >= DELAY_SECONDS_MAX)
        else {
            continue;
        };
        let who = match (open.pid, open.login, open.application) {
            (None, ..) => "a prepared transaction".to_owned(),
            (Some(pid), login, application) => format!(
                "process {pid} ({}, {})",
                login.unwrap_or_default(),
                application.unwrap_or_default()
            ),
        };
        checks.push(warn(
            "producers",
            format!("{who} has told events and not ended its transaction: what was told after it has waited for {seconds} s"),
        ));
    }
    Ok(())
}

/// Whether this is the server the installation is known to run on.
async fn examine_identity(
    connection: &mut PgConnection,
    schema: &Schema,
    checks: &mut Vec<Check>,
) -> Result<(), Failure> {
    let mut transaction = connection.begin().await?;
    migrate::become_reader(&mut transaction, schema).await?;
    let record: Result<Option<ServerRecord>, _> = sqlx::query_as(SERVER_RECORD)
        .fetch_optional(Session::from(&mut transaction).in_schema(schema))
        .await;
    transaction.rollback().await?;
    let record = match record.map_err(DbError::from) {
        Err(DbError::MissingPrivilege { .. }) => {
            checks.push(warn(
                "identity",
                "the login may not read which server is on record".to_owned(),
            ));
            return Ok(());
        }
        record => record?,
    };
    // The data's own lines say that it is gone.
    let Some(record) = record else { return Ok(()) };
    match record.trouble() {
        Some(trouble) => checks.push(fail(
            "identity",
            format!("nothing is dispatched here: {trouble}; see `{}`", symphony("restore check")),
        )),
        None => {
            checks.push(ok("identity", "this is the server the installation is known to run on"));
        }
    }
    if let (Some(since), Some(until)) = (record.lost_since, record.ask_first_until) {
        checks.push(warn(
            "identity",
            format!(
                "what was sent after {since} may be missing here: rails are asked first about payments asked for before {until}"
            ),
        ));
    }
    Ok(())
}

async fn examine_data(
    connection: &mut PgConnection,
    schema: &Schema,
    deep: bool,
    checks: &mut Vec<Check>,
) -> Result<(), Failure> {
    if let Ok(incidents) = open_incidents(connection, schema).await {
        if incidents.is_empty() {
            checks.push(ok("incidents", "no late outcome contradicts the ledger"));
        }
        for (lane, count) in incidents {
            checks.push(fail(
                "incidents",
                format!(
                    "{count} late outcomes of {lane} contradict the ledger: {}",
                    symphony("incident list")
                ),
            ));
        }
    }
    if let Ok(waiting) = waiting_approvals(connection, schema).await {
        if waiting.is_empty() {
            checks.push(ok("approvals", "no act waits for a second person"));
        }
        for (lane, count) in waiting {
            let waits = if count == 1 { "act waits" } else { "acts wait" };
            let advice = symphony("approval list");
            checks.push(warn(
                "approvals",
                format!("{lane}: {count} {waits} for a second person: {advice}"),
            ));
        }
    }
    if let Ok(unserved) = unserved(connection, schema).await {
        if unserved.is_empty() {
            checks.push(ok("served", "whatever waits has a live worker that serves it"));
        }
        checks.extend(unserved.iter().map(|one| warn("served", attention::unserved(one))));
    }
    let report = match data_checks::contradictions(connection, schema, deep).await {
        Err(
            MigrateError::Db(DbError::MissingPrivilege { .. }) | MigrateError::Privilege { .. },
        ) => {
            let advice = "the data was not compared: the login has neither symphony_auditor nor the installer's rights";
            checks.push(warn("data", advice.to_owned()));
            return Ok(());
        }
        result => result?,
    };
    match report.not_compared_bytes {
        Some(bytes) => checks.push(warn(
            "data",
            format!(
                "{} MB were not compared row by row: run `{}`",
                bytes >> 20,
                symphony("doctor --deep")
            ),
        )),
        None if report.contradictions.is_empty() => checks.push(ok(
            "data",
            "what was asked, what waits, the ledgers and their numbers agree, in every lane",
        )),
        None => {}
    }
    checks.extend(report.contradictions.into_iter().map(|finding| fail("data", finding)));
    Ok(())
}

/// As whoever the login may be: an auditor reads them, the installing login only as the owner.
async fn open_incidents(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<(String, i64)>, Failure> {
    let mut transaction = connection.begin().await?;
    migrate::become_reader(&mut transaction, schema).await?;
    let incidents = inspect::open_incidents(&mut transaction, schema).await;
    transaction.rollback().await?;
    Ok(incidents?)
}

/// What waits for a second person, as whoever the login may be.
async fn waiting_approvals(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<(String, i64)>, Failure> {
    let mut transaction = connection.begin().await?;
    migrate::become_reader(&mut transaction, schema).await?;
    let waiting = inspect::waiting_approvals(&mut transaction, schema).await;
    transaction.rollback().await?;
    Ok(waiting?)
}

/// What waits and nobody serves, as whoever the login may be.
async fn unserved(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<Unserved>, Failure> {
    let mut transaction = connection.begin().await?;
    migrate::become_reader(&mut transaction, schema).await?;
    let session = Session::from(&mut transaction).in_schema(schema);
    let unserved = sqlx::query_as(UNSERVED).fetch_all(session).await;
    transaction.rollback().await?;
    Ok(unserved?)
}

/// What a worker started here would meet: its settings, its rails, its hints.
async fn examine_workers(
    global: &Global,
    server: &Server,
    checks: &mut Vec<Check>,
) -> Result<(), Failure> {
    let (config, rails) = match settings(global) {
        Ok(settings) => settings,
        Err(failure) => {
            checks.push(fail("settings", failure.to_string().replace('\n', "; ")));
            return Ok(());
        }
    };
    let lease = config.worker.engine().lease.as_secs();
    let names: Vec<_> = rails.iter().map(|rail| rail.name.as_str()).collect();
    checks.push(ok(
        "settings",
        &match names.as_slice() {
            [] => format!(
                "lease {lease} s; no rail is configured here, so no worker can be started here"
            ),
            names => format!("lease {lease} s fits the timeouts of {}", names.join(", ")),
        },
    ));
    if checks.iter().any(|check| check.subject == "schema" && check.verdict != CheckResult::Ok) {
        return Ok(());
    }
    let database = server.database(2).await?;
    match worker::refuse_unmarked(&database, &rails).await {
        Ok(()) => {}
        Err(_) if rails.is_empty() => {}
        // Nothing is wrong with the installation: this login is no worker's.
        Err(failure) if failure.code() == Some("42501") => {
            checks.push(warn("settings", format!("rails were not compared: {failure}")));
        }
        Err(failure) => checks.push(fail("settings", failure.to_string())),
    }
    let listen = super::run::listen_options(&config, server)?;
    let heard = tokio::time::timeout(PROBE_LIMIT, probe(&database, listen)).await;
    checks.push(match heard {
        Ok(Ok(true)) => ok("listener", "a hint sent here is heard here"),
        Ok(Ok(false)) => warn(
            "listener",
            "a transaction pooler lends the sessions, where no hints are heard: workers will poll; for hints, set \
             database.listen_url to a direct connection"
                .to_owned(),
        ),
        Ok(Err(error)) => warn("listener", format!("cannot listen: {error}; workers will poll")),
        Err(_) => warn(
            "listener",
            "a hint sent here is not heard: does database.listen_url lead to the same database? workers will poll"
                .to_owned(),
        ),
    });
    Ok(())
}

/// The settings, and the rails they name. Nothing configured is no contradiction.
fn settings(global: &Global) -> Result<(Config, Vec<RailSetup>), Failure> {
    let config = Config::load_all(global.config.as_deref())?;
    let is_empty = config.rails.is_empty() && !config.events.has_routes();
    if is_empty && config.defects.is_empty() {
        return Ok((config, Vec::new()));
    }
    let plan = Plan::new(&config, &[], &[])?;
    Ok((config, plan.rails.unwrap_or_default()))
}

/// Send a hint to ourselves over one connection, and hear it over another. `false` where nothing can be heard.
async fn probe(database: &Database, listen: PgConnectOptions) -> Result<bool, DbError> {
    let channel = format!("symphony_doctor_{}", std::process::id());
    let Some(mut hints) = Hints::connect(listen, &channel, &channel).await? else {
        return Ok(false);
    };
    database.send_probe(&channel).await?;
    hints.next().await.map(|_| true)
}

fn fail(subject: &'static str, finding: String) -> Check {
    Check { verdict: CheckResult::Fail, subject, finding }
}

fn warn(subject: &'static str, finding: String) -> Check {
    Check { verdict: CheckResult::Warn, subject, finding }
}

fn ok(subject: &'static str, finding: &str) -> Check {
    Check { verdict: CheckResult::Ok, subject, finding: finding.to_owned() }
}

fn examine_server(facts: &ServerFacts, checks: &mut Vec<Check>) {
    let mut judge = |holds: bool, otherwise: CheckResult, finding: String| {
        checks.push(Check {
            verdict: if holds { CheckResult::Ok } else { otherwise },
            subject: "server",
            finding,
        });
    };
    judge(
        VERSIONS.contains(&(facts.version_num / 10_000)),
        CheckResult::Warn,
        format!("PostgreSQL {} (15 to 18 are tested)", facts.version),
    );
    for (name, value) in [("fsync", &facts.fsync), ("full_page_writes", &facts.full_page_writes)] {
        judge(
            value == "on",
            CheckResult::Fail,
            format!(
                "{name} = {value}{}",
                advice(value == "on", "a crash can lose or corrupt payments; set it to on")
            ),
        );
    }
    let durable = facts.synchronous_commit != "off";
    judge(
        durable,
        CheckResult::Fail,
        format!(
            "synchronous_commit = {}{}",
            facts.synchronous_commit,
            advice(durable, "a crash can undo an answered commit and pay twice; set it to on")
        ),
    );
    judge(
        facts.autovacuum == "on",
        CheckResult::Warn,
        format!(
            "autovacuum = {}{}",
            facts.autovacuum,
            advice(facts.autovacuum == "on", "dead rows slow every claim")
        ),
    );
    judge(facts.encoding == "UTF8", CheckResult::Fail, format!("encoding {}", facts.encoding));
    let young = facts.oldest_snapshot_seconds < OLD_SNAPSHOT_SECONDS;
    judge(
        young,
        CheckResult::Warn,
        format!(
            "oldest snapshot held for {} s{}",
            facts.oldest_snapshot_seconds,
            advice(young, "it keeps finished items in the queue's indexes; end that transaction")
        ),
    );
    if facts.logs_bound_values {
        let finding = "statements are logged with the values bound to them, payloads included: set log_parameter_max_length = 0";
        judge(false, CheckResult::Warn, finding.to_owned());
    }
}

fn advice(holds: bool, advice: &str) -> String {
    if holds { String::new() } else { format!(": {advice}") }
}
