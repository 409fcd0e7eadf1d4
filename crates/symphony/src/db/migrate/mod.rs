//! Installing the schema: one transaction, idempotent, safe to interrupt and to repeat.
//!
//! What is there is compared fact by fact with what is declared ([`catalog`](super::catalog)). What the data allows is
//! repaired in place; the rest is named, nothing that differs is stamped, and nothing that is not ours is dropped.
//!
//! Works without superuser, given CREATEROLE and CREATE on the database (as on Aurora and RDS): the
//! migrating login becomes a member of the owner role for the length of the transaction, and no longer.

mod blockers;
mod error;
mod legacy;
mod repair;
mod scripts;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use uuid::Uuid;

use super::catalog::{self, Difference, environment};
use super::{DbError, Schema, connect, inspect, privileges};
use crate::schema::{self, SCHEMA_VERSION, Section};
use blockers::Watcher;
pub use error::MigrateError;
pub use scripts::print;
use scripts::{BECOME_OWNER, DROP_EVERYTHING, LEAVE_OWNER, LOCK_STAMP, LOOK_AS_OWNER};

/// Another database of the cluster may be creating the same roles: how often to start over.
const TRIES: u32 = 20;
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// What the caller allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The schema everything is installed in.
    pub schema: Schema,
    /// Drop an older installation's table, type and view, if nothing unfinished is in them.
    pub replace_legacy: bool,
    /// Drop everything Symphony owns in this schema first, ledger included.
    pub fresh: bool,
    /// How long to wait for a lock: whoever waits for a table makes everybody behind it wait too.
    pub lock_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: Schema::default(),
            replace_legacy: false,
            fresh: false,
            lock_timeout: Duration::from_secs(10),
        }
    }
}

/// What is installed, compared with what this build carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing of Symphony.
    NotInstalled,
    /// Exactly this build's schema.
    UpToDate,
    /// This build's tables with other functions, views or privileges: `migrate` brings them up to date.
    CodeDiffers,
    /// Not as declared, though stamped as this build's: `migrate` restores what it can and names the rest.
    ChangedByHand,
    /// Other tables: until 1.0 only `--fresh` helps.
    TablesDiffer,
    /// Installed by a newer version.
    Newer,
}

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// As the database was before.
    pub before: State,
    /// What was not as declared and is again.
    pub repaired: Vec<String>,
    /// What is worth knowing and was left alone.
    pub notes: Vec<String>,
}

/// Bring the database to this build's schema.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use symphony::db::migrate::{Options, migrate};
///
/// let admin = "postgres://admin@localhost/shop".parse()?;
/// let report = migrate(&admin, Options::default()).await?;
/// println!("was {:?}", report.before);
/// # Ok(())
/// # }
/// ```
pub async fn migrate(server: &PgConnectOptions, options: Options) -> Result<Report, MigrateError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_migrate(server, &options).await {
            Err(MigrateError::Db(error)) if tries < TRIES && is_race(&error) => {
                tokio::time::sleep(TRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Two migrations of one cluster touched the same role or schema at once; the loser starts over.
fn is_race(error: &DbError) -> bool {
    match error {
        DbError::Retry { .. } => true,
        DbError::Integrity { constraint } => constraint.starts_with("pg_"),
        DbError::Refused { sqlstate, message } => {
            ["42710", "42P06", "42P07"].contains(&sqlstate.as_str())
                || (sqlstate == "XX000" && message.contains("concurrently"))
        }
        _ => false,
    }
}

async fn try_migrate(server: &PgConnectOptions, options: &Options) -> Result<Report, MigrateError> {
    let mut connection = connect(server).await?;
    // The simple protocol: behind a pooler no statement may have a name.
    let pid: i32 =
        sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(&mut connection).await?.try_get(0)?;
    let watcher = Watcher::start(server, pid);
    let result = in_transaction(&mut connection, options).await;
    match result {
        Err(MigrateError::Db(DbError::Refused { sqlstate, .. })) if sqlstate == "55P03" => {
            Err(MigrateError::Blocked {
                seconds: options.lock_timeout.as_secs(),
                by: watcher.last_seen(),
            })
        }
        result => {
            connection.close().await?;
            result
        }
    }
}

async fn in_transaction(
    connection: &mut PgConnection,
    options: &Options,
) -> Result<Report, MigrateError> {
    let schema = &options.schema;
    let mut transaction = connection.begin().await?;
    // Not the login's own: a name must mean what it means to us, whatever was set for the login or the database.
    run(
        &mut transaction,
        &format!(
            "SET LOCAL search_path = pg_catalog; SET LOCAL lock_timeout = {}",
            options.lock_timeout.as_millis()
        ),
    )
    .await?;
    legacy::replace(&mut transaction, options).await?;
    refuse_earlier_build(&mut transaction).await?;
    let foreign = catalog::foreign_objects(&mut transaction, schema).await?;
    if !foreign.is_empty() {
        return Err(MigrateError::Foreign { objects: foreign });
    }
    // Looked at before anything is created: such a trigger would run as the owner.
    let (failing, mut notes) =
        environment::split(environment::findings(&mut transaction, schema).await?);
    if let Some(hostile) = failing.iter().find(|finding| finding.starts_with("event trigger")) {
        return Err(MigrateError::Refused {
            remaining: vec![hostile.clone()],
            repaired: Vec::new(),
        });
    }
    run(&mut transaction, &schema::script(Section::Roles)).await?;
    run(&mut transaction, &schema.text(BECOME_OWNER)).await?;
    run(&mut transaction, &schema.text(LOCK_STAMP)).await?;

    let (before, differences) = state_of(&mut transaction, schema).await?;
    match before {
        State::Newer => {
            let installed = stamp(&mut transaction, schema).await?.map_or(0, |stamp| stamp.0);
            return Err(MigrateError::Newer { installed });
        }
        State::TablesDiffer if !options.fresh => {
            let (schema, differences) = (schema.clone(), said(&differences));
            return Err(MigrateError::TablesDiffer { schema, differences });
        }
        _ => {}
    }
    let mut kept = None;
    if options.fresh {
        kept = installation_id(&mut transaction, schema).await?;
        run(&mut transaction, &schema.text(DROP_EVERYTHING)).await?;
        run(&mut transaction, &schema.text(BECOME_OWNER)).await?;
    }
    let fresh = options.fresh || before == State::NotInstalled;
    if fresh {
        install(&mut transaction, schema).await?;
    }
    if let Some(id) = kept {
        let keep = format!("UPDATE {schema}.symphony_installation SET installation_id = '{id}'");
        run(&mut transaction, &keep).await?;
    }
    let outcome = repair::repair(&mut transaction, schema, &differences).await?;
    notes.extend(outcome.notes);
    let mut remaining = outcome.remaining;
    remaining.extend(failing);
    for difference in inspect::privilege_differences(&mut transaction, schema).await? {
        // Granted for the length of this transaction.
        if difference.role == privileges::OWNER && difference.object.starts_with("schema ") {
            continue;
        }
        if difference.is_reading_by_others() {
            notes.push(difference.to_string());
        } else {
            remaining.push(difference.to_string());
        }
    }
    let repaired = if fresh { Vec::new() } else { outcome.repaired };
    if remaining.is_empty() {
        run(&mut transaction, &scripts::stamp(schema)).await?;
        run(&mut transaction, &schema.text(LEAVE_OWNER)).await?;
        // A pooler may lend this session to others next: no name stays behind.
        transaction.clear_cached_statements().await?;
        transaction.commit().await?;
        return Ok(Report { before, repaired, notes });
    }
    // What was restored of this very version stays; half an update does not.
    if before == State::ChangedByHand {
        run(&mut transaction, &schema.text(LEAVE_OWNER)).await?;
        // A pooler may lend this session to others next: no name stays behind.
        transaction.clear_cached_statements().await?;
        transaction.commit().await?;
        return Err(MigrateError::Refused { remaining, repaired });
    }
    transaction.rollback().await?;
    Err(MigrateError::Refused { remaining, repaired: Vec::new() })
}

/// Payments that wait in an earlier build's tables would be worked by nobody, and nobody would know.
async fn refuse_earlier_build(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let found: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_namespace \
          WHERE nspname = 'symphony_internal' AND nspowner = to_regrole('symphony_control'))",
    )
    .fetch_one(connection)
    .await?;
    if found { Err(MigrateError::EarlierBuild) } else { Ok(()) }
}

async fn install(connection: &mut PgConnection, schema: &Schema) -> Result<(), MigrateError> {
    for script in [
        scripts::tables_anew(schema),
        scripts::section(Section::Functions, schema),
        scripts::section(Section::Triggers, schema),
        scripts::section(Section::Views, schema),
    ] {
        run(connection, &script).await?;
    }
    Ok(())
}

/// Kept when everything else is made anew: rails know payments by keys that are derived from it.
async fn installation_id(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Option<Uuid>, MigrateError> {
    let there: bool = sqlx::query_scalar(
        schema.sql("SELECT to_regclass('symphony.symphony_installation') IS NOT NULL"),
    )
    .fetch_one(&mut *connection)
    .await?;
    if !there {
        return Ok(None);
    }
    let sql = schema.sql("SELECT installation_id FROM symphony.symphony_installation");
    Ok(sqlx::query_scalar(sql).fetch_optional(connection).await?)
}

/// What is not as declared and matters.
async fn left(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<Difference>, MigrateError> {
    let mut all = catalog::differences(connection, schema).await?;
    all.retain(|difference| !difference.is_harmless());
    Ok(all)
}

fn said(differences: &[Difference]) -> Vec<String> {
    differences.iter().filter(|d| !d.is_harmless()).map(ToString::to_string).collect()
}

/// Compare the installed schema with this build's. Changes nothing; needs no right but to connect, if the login may read
/// the stamp, or may become the owner.
pub async fn check(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<(State, Vec<Difference>), MigrateError> {
    let mut transaction = connection.begin().await?;
    become_reader(&mut transaction, schema).await?;
    let login: String =
        sqlx::query_scalar("SELECT session_user::text").fetch_one(&mut *transaction).await?;
    let state = state_of(&mut transaction, schema).await.map_err(|error| match error {
        MigrateError::Privilege { .. } => DbError::MissingRole { login, roles: LOOKERS }.into(),
        other => other,
    });
    transaction.rollback().await?;
    state
}

/// Who may look without being the login that migrates.
const LOOKERS: &[&str] = &["symphony_auditor", "symphony_operator", "symphony_approver"];

/// Refuse a schema this build does not know, by its stamp alone: one cheap read for every command.
pub async fn require_known(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<(), MigrateError> {
    let mut transaction = connection.begin().await?;
    let known = match become_reader(&mut transaction, schema).await {
        Ok(()) => match stamp(&mut transaction, schema).await {
            // No right to read the stamp: the functions themselves refuse what the login may not do.
            Err(MigrateError::Privilege { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(None) => Err(MigrateError::NotInstalled { schema: schema.clone() }),
            Ok(Some((version, _, _))) if version > SCHEMA_VERSION => {
                Err(MigrateError::Newer { installed: version })
            }
            Ok(Some((version, tables, _)))
                if version < SCHEMA_VERSION || tables != schema::tables_hash() =>
            {
                let differences = vec!["by its stamp".to_owned()];
                Err(MigrateError::TablesDiffer { schema: schema.clone(), differences })
            }
            Ok(Some((_, _, code))) if code != schema::code_hash() => {
                Err(MigrateError::CodeDiffers { schema: schema.clone() })
            }
            Ok(Some(_)) => Ok(()),
        },
        Err(MigrateError::Privilege { .. }) => Ok(()),
        Err(error) => Err(error),
    };
    transaction.rollback().await?;
    known
}

/// Refuse a schema that is not exactly this build's, by its stamp and by the live catalog: for whoever sends.
pub async fn require_declared(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<(), MigrateError> {
    require_known(connection, schema).await?;
    let differences = left(connection, schema).await?;
    if differences.is_empty() {
        return Ok(());
    }
    Err(MigrateError::ChangedByHand { schema: schema.clone(), differences: said(&differences) })
}

/// Take on a role that may read everything an auditor may: the login itself, a role it has, or the owner. In a
/// transaction that is rolled back.
pub async fn become_reader(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<(), MigrateError> {
    let role: Option<String> = sqlx::query_scalar(schema.sql(
        "SELECT r.role FROM unnest(ARRAY[current_user::text, 'symphony_auditor'] || $1::text[]) WITH ORDINALITY r(role, n) \
          WHERE EXISTS (SELECT FROM pg_catalog.pg_roles p WHERE p.rolname = r.role AND pg_catalog.pg_has_role(p.oid, 'MEMBER')) \
            AND EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                         WHERE n.nspname = 'symphony'::text AND c.relname = 'symphony_schema' \
                           AND has_schema_privilege(r.role, n.oid, 'USAGE') AND has_table_privilege(r.role, c.oid, 'SELECT')) \
          ORDER BY n LIMIT 1",
    ))
    .bind(privileges::RUNTIME_ROLES)
    .fetch_optional(&mut *connection)
    .await?;
    let owner: Option<bool> = sqlx::query_scalar(schema.sql(
        "SELECT pg_has_role(to_regrole('symphony_control')::oid, 'USAGE') OR (SELECT rolcreaterole FROM pg_roles WHERE rolname = current_user) \
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
          WHERE n.nspname = 'symphony'::text AND c.relname = 'symphony_schema' \
            AND has_schema_privilege(c.relowner, n.oid, 'USAGE')",
    ))
    .fetch_optional(&mut *connection)
    .await?
    .flatten();
    if owner == Some(true) {
        // A look as the owner, where the login may: it reads the counters too.
        let mut attempt = connection.begin().await?;
        match run(&mut attempt, LOOK_AS_OWNER).await {
            Ok(()) => {
                attempt.commit().await?;
                // After the savepoint, with which it would end: what is looked at must not be able to write.
                return run(connection, "SET LOCAL transaction_read_only = on").await;
            }
            Err(MigrateError::Privilege { .. } | MigrateError::Db(_)) => attempt.rollback().await?,
            Err(error) => return Err(error),
        }
    }
    if let Some(role) = role {
        let role = role.replace('"', "\"\"");
        run(
            connection,
            &format!("SET LOCAL ROLE \"{role}\"; SET LOCAL transaction_read_only = on"),
        )
        .await?;
    }
    Ok(())
}

async fn run(connection: &mut PgConnection, script: &str) -> Result<(), MigrateError> {
    // Our own embedded text, never a user's.
    sqlx::raw_sql(AssertSqlSafe(script)).execute(connection).await?;
    Ok(())
}

/// (version, tables hash, code hash), if there is a stamp.
async fn stamp(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Option<(i32, String, String)>, MigrateError> {
    let exists: bool = sqlx::query_scalar(
        // Not by to_regclass, which refuses whoever has no right on the schema.
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
          WHERE n.nspname = $1 AND c.relname = 'symphony_schema')",
    )
    .bind(schema.name())
    .fetch_one(&mut *connection)
    .await?;
    if !exists {
        return Ok(None);
    }
    // By name of the column, so that another version's stamp is read too.
    Ok(sqlx::query_as(schema.sql(
        "SELECT coalesce((to_jsonb(s)->>'schema_version')::int, 0), coalesce(to_jsonb(s)->>'tables_hash', ''), \
                coalesce(to_jsonb(s)->>'code_hash', '') FROM symphony.symphony_schema s",
    ))
    .fetch_optional(connection)
    .await?)
}

async fn state_of(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<(State, Vec<Difference>), MigrateError> {
    let installed: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
          WHERE n.nspname = $1 AND c.relowner = to_regrole('symphony_control') AND c.relkind = 'r')",
    )
    .bind(schema.name())
    .fetch_one(&mut *connection)
    .await?;
    if !installed {
        return Ok((State::NotInstalled, Vec::new()));
    }
    let differences = catalog::differences(connection, schema).await?;
    let tables_differ = differences.iter().any(Difference::is_of_tables);
    let state = match stamp(connection, schema).await? {
        Some((version, _, _)) if version > SCHEMA_VERSION => State::Newer,
        // The catalog decides, not the stamp: a forged stamp must not lead anybody to --fresh.
        Some((version, tables, _))
            if tables_differ && (version < SCHEMA_VERSION || tables != schema::tables_hash()) =>
        {
            State::TablesDiffer
        }
        Some((version, tables, code))
            if version < SCHEMA_VERSION
                || tables != schema::tables_hash()
                || code != schema::code_hash() =>
        {
            State::CodeDiffers
        }
        Some(_) if differences.iter().all(Difference::is_harmless) => State::UpToDate,
        _ => State::ChangedByHand,
    };
    Ok((state, differences))
}
