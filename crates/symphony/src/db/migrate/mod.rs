//! Installing the schema: one transaction, idempotent, safe to interrupt and to repeat.
//!
//! What is there is compared fact by fact with what is declared ([`catalog`](super::catalog)). What the data allows is
//! repaired in place; the rest is named, nothing that differs is stamped, and nothing that is not ours is dropped.
//!
//! Works without superuser, given CREATEROLE and ownership of the database (as on Aurora and RDS): the
//! migrating login becomes a member of the owner role for the length of the transaction, and no longer.

mod blockers;
mod legacy;
mod repair;
mod scripts;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use uuid::Uuid;

use super::catalog::{self, Difference, environment};
use super::{DbError, connect, inspect, privileges};
use crate::schema::{self, SCHEMA_VERSION, Section};
use blockers::Watcher;
pub use scripts::print;
use scripts::{BECOME_OWNER, DROP_EVERYTHING, LEAVE_OWNER, LOCK_STAMP, LOOK_AS_OWNER};

/// Another database of the cluster may be creating the same roles: how often to start over.
const TRIES: u32 = 20;
const TRY_PAUSE: Duration = Duration::from_millis(100);
/// How many things one message names.
const NAMED_MAX: usize = 30;

/// What the caller allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Drop an older installation's table, type and view, if nothing unfinished is in them.
    pub replace_legacy: bool,
    /// Drop everything Symphony owns in this database first, ledger included.
    pub fresh: bool,
    /// How long to wait for a lock: whoever waits for a table makes everybody behind it wait too.
    pub lock_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { replace_legacy: false, fresh: false, lock_timeout: Duration::from_secs(10) }
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

/// Why a migration did not happen, or not wholly. Nothing was changed, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Nothing there.
    #[error("Symphony's schema is not installed in this database: run `symphony migrate`")]
    NotInstalled,
    /// Other functions.
    #[error(
        "this database has functions, views or privileges of another version than this build: run `symphony migrate`"
    )]
    CodeDiffers,
    /// From the future.
    #[error(
        "this database has schema version {installed}, newer than this build's {SCHEMA_VERSION}: use a newer symphony"
    )]
    Newer {
        /// Its version.
        installed: i32,
    },
    /// Other tables.
    #[error(
        "this database has other tables than this build (until 1.0 they change in place): keep the older symphony, or recreate everything, ledger included, with `symphony migrate --fresh --yes` ({})",
        named(.differences)
    )]
    TablesDiffer {
        /// In what.
        differences: Vec<String>,
    },
    /// Not as declared.
    #[error(
        "the schema is not as declared: {}; `symphony doctor` says what is wrong, `symphony migrate` restores what it can",
        named(.differences)
    )]
    ChangedByHand {
        /// In what.
        differences: Vec<String>,
    },
    /// What a migration cannot prove or may not touch.
    #[error(
        "the schema was not stamped, because {} left that migrate does not touch: {}{}",
        things(.remaining),
        named(.remaining),
        restored(.repaired)
    )]
    Refused {
        /// What is left.
        remaining: Vec<String>,
        /// What was restored, and stays so.
        repaired: Vec<String>,
    },
    /// Somebody else's objects under our names.
    #[error(
        "other objects bear Symphony's names, and are neither adopted nor dropped: {}; rename or remove them first",
        named(.objects)
    )]
    Foreign {
        /// Each with its owner.
        objects: Vec<String>,
    },
    /// Somebody else's objects stand on ours.
    #[error(
        "other objects stand on what would have to be dropped: {message}; drop or change them first"
    )]
    Dependents {
        /// What the database said.
        message: String,
    },
    /// An older installation.
    #[error(
        "an older installation is here ({found}): `symphony migrate --replace-legacy --yes` drops it, if it holds no unfinished rows"
    )]
    Legacy {
        /// What was found.
        found: String,
    },
    /// An older installation with work in it.
    #[error(
        "the older table payment_outbox still holds {rows} unfinished rows: finish or remove them first"
    )]
    LegacyUnfinished {
        /// How many.
        rows: i64,
    },
    /// Somebody holds a lock.
    #[error(
        "waited {seconds} s for a lock, in vain: blocked by {by}; nothing was changed, try again when it has ended"
    )]
    Blocked {
        /// How long.
        seconds: u64,
        /// By whom.
        by: String,
    },
    /// The login may not.
    #[error(
        "the login lacks the rights to migrate: {message}; it needs CREATEROLE and must own the database, or be a superuser"
    )]
    Privilege {
        /// What the database said.
        message: String,
    },
    /// Anything else.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl MigrateError {
    /// The stable code whose page explains more, where there is one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::NotInstalled
            | Self::CodeDiffers
            | Self::TablesDiffer { .. }
            | Self::Newer { .. } => Some("SYM01"),
            Self::ChangedByHand { .. }
            | Self::Refused { .. }
            | Self::Foreign { .. }
            | Self::Dependents { .. } => Some("SYM06"),
            Self::Privilege { .. } => Some("42501"),
            Self::Db(error) => Some(error.code()),
            Self::Legacy { .. } | Self::LegacyUnfinished { .. } | Self::Blocked { .. } => None,
        }
    }
}

fn named(all: &[String]) -> String {
    let mut text = all.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    if all.len() > NAMED_MAX {
        text.push_str(&format!("; and {} more", all.len() - NAMED_MAX));
    }
    text.replace('\n', " ")
}

fn things(all: &[String]) -> String {
    if all.len() == 1 { "one thing is".to_owned() } else { format!("{} things are", all.len()) }
}

fn restored(repaired: &[String]) -> String {
    if repaired.is_empty() {
        String::new()
    } else {
        format!("; restored meanwhile: {}", named(repaired))
    }
}

impl From<sqlx::Error> for MigrateError {
    fn from(error: sqlx::Error) -> Self {
        if let sqlx::Error::Database(inner) = &error
            && inner.code().as_deref() == Some("2BP01")
        {
            return Self::Dependents { message: repair::words(&error) };
        }
        match DbError::from(error) {
            DbError::MissingPrivilege { message } => Self::Privilege { message },
            other => Self::Db(other),
        }
    }
}

/// Bring the database to this build's schema.
pub async fn migrate(server: &PgConnectOptions, options: Options) -> Result<Report, MigrateError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_migrate(server, options).await {
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

async fn try_migrate(server: &PgConnectOptions, options: Options) -> Result<Report, MigrateError> {
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
    options: Options,
) -> Result<Report, MigrateError> {
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
    let foreign = catalog::foreign_objects(&mut transaction).await?;
    if !foreign.is_empty() {
        return Err(MigrateError::Foreign { objects: foreign });
    }
    // Looked at before anything is created: such a trigger would run as the owner.
    let (failing, mut notes) = environment::split(environment::findings(&mut transaction).await?);
    if let Some(hostile) = failing.iter().find(|finding| finding.starts_with("event trigger")) {
        return Err(MigrateError::Refused {
            remaining: vec![hostile.clone()],
            repaired: Vec::new(),
        });
    }
    run(&mut transaction, &schema::script(Section::Roles)).await?;
    run(&mut transaction, BECOME_OWNER).await?;
    run(&mut transaction, LOCK_STAMP).await?;

    let (before, differences) = state_of(&mut transaction).await?;
    match before {
        State::Newer => {
            let installed = stamp(&mut transaction).await?.map_or(0, |stamp| stamp.0);
            return Err(MigrateError::Newer { installed });
        }
        State::TablesDiffer if !options.fresh => {
            return Err(MigrateError::TablesDiffer { differences: said(&differences) });
        }
        _ => {}
    }
    let mut kept = None;
    if options.fresh {
        kept = installation_id(&mut transaction).await?;
        run(&mut transaction, DROP_EVERYTHING).await?;
        run(&mut transaction, BECOME_OWNER).await?;
    }
    let fresh = options.fresh || before == State::NotInstalled;
    if fresh {
        install(&mut transaction).await?;
    }
    if let Some(id) = kept {
        let keep = format!("UPDATE public.symphony_installation SET installation_id = '{id}'");
        run(&mut transaction, &keep).await?;
    }
    let outcome = repair::repair(&mut transaction, &differences).await?;
    notes.extend(outcome.notes);
    let mut remaining = outcome.remaining;
    remaining.extend(failing);
    for difference in inspect::privilege_differences(&mut transaction).await? {
        // Granted for the length of this transaction.
        if difference.role == privileges::OWNER && difference.object == "schema public" {
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
        run(&mut transaction, &scripts::stamp()).await?;
        run(&mut transaction, LEAVE_OWNER).await?;
        // A pooler may lend this session to others next: no name stays behind.
        transaction.clear_cached_statements().await?;
        transaction.commit().await?;
        return Ok(Report { before, repaired, notes });
    }
    // What was restored of this very version stays; half an update does not.
    if before == State::ChangedByHand {
        run(&mut transaction, LEAVE_OWNER).await?;
        // A pooler may lend this session to others next: no name stays behind.
        transaction.clear_cached_statements().await?;
        transaction.commit().await?;
        return Err(MigrateError::Refused { remaining, repaired });
    }
    transaction.rollback().await?;
    Err(MigrateError::Refused { remaining, repaired: Vec::new() })
}

async fn install(connection: &mut PgConnection) -> Result<(), MigrateError> {
    for script in [
        scripts::tables_anew(),
        schema::script(Section::Functions),
        schema::script(Section::Triggers),
        schema::script(Section::Views),
    ] {
        run(connection, &script).await?;
    }
    Ok(())
}

/// Kept when everything else is made anew: rails know payments by keys that are derived from it.
async fn installation_id(connection: &mut PgConnection) -> Result<Option<Uuid>, MigrateError> {
    let there: bool =
        sqlx::query_scalar("SELECT to_regclass('public.symphony_installation') IS NOT NULL")
            .fetch_one(&mut *connection)
            .await?;
    if !there {
        return Ok(None);
    }
    let sql = "SELECT installation_id FROM public.symphony_installation";
    Ok(sqlx::query_scalar(sql).fetch_optional(connection).await?)
}

/// What is not as declared and matters.
async fn left(connection: &mut PgConnection) -> Result<Vec<Difference>, MigrateError> {
    let mut all = catalog::differences(connection).await?;
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
) -> Result<(State, Vec<Difference>), MigrateError> {
    let mut transaction = connection.begin().await?;
    become_reader(&mut transaction).await?;
    let login: String =
        sqlx::query_scalar("SELECT session_user::text").fetch_one(&mut *transaction).await?;
    let state = state_of(&mut transaction).await.map_err(|error| match error {
        MigrateError::Privilege { .. } => DbError::MissingRole { login, roles: LOOKERS }.into(),
        other => other,
    });
    transaction.rollback().await?;
    state
}

/// Who may look without being the login that migrates.
const LOOKERS: &[&str] = &["symphony_auditor", "symphony_operator", "symphony_approver"];

/// Refuse a schema this build does not know, by its stamp alone: one cheap read for every command.
pub async fn require_known(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let mut transaction = connection.begin().await?;
    let known = match become_reader(&mut transaction).await {
        Ok(()) => match stamp(&mut transaction).await {
            // No right to read the stamp: the functions themselves refuse what the login may not do.
            Err(MigrateError::Privilege { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(None) => Err(MigrateError::NotInstalled),
            Ok(Some((version, _, _))) if version > SCHEMA_VERSION => {
                Err(MigrateError::Newer { installed: version })
            }
            Ok(Some((version, tables, _)))
                if version < SCHEMA_VERSION || tables != schema::tables_hash() =>
            {
                Err(MigrateError::TablesDiffer { differences: vec!["by its stamp".to_owned()] })
            }
            Ok(Some((_, _, code))) if code != schema::code_hash() => Err(MigrateError::CodeDiffers),
            Ok(Some(_)) => Ok(()),
        },
        Err(MigrateError::Privilege { .. }) => Ok(()),
        Err(error) => Err(error),
    };
    transaction.rollback().await?;
    known
}

/// Refuse a schema that is not exactly this build's, by its stamp and by the live catalog: for whoever sends.
pub async fn require_declared(connection: &mut PgConnection) -> Result<(), MigrateError> {
    require_known(connection).await?;
    let differences = left(connection).await?;
    if differences.is_empty() {
        return Ok(());
    }
    Err(MigrateError::ChangedByHand { differences: said(&differences) })
}

/// Take on a role that may read everything an auditor may: the login itself, a role it has, or the owner. In a
/// transaction that is rolled back.
pub async fn become_reader(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let role: Option<String> = sqlx::query_scalar(
        "SELECT r.role FROM unnest(ARRAY[current_user::text, 'symphony_auditor'] || $1::text[]) WITH ORDINALITY r(role, n) \
          WHERE EXISTS (SELECT FROM pg_catalog.pg_roles p WHERE p.rolname = r.role AND pg_catalog.pg_has_role(p.oid, 'MEMBER')) \
            AND has_table_privilege(r.role, pg_catalog.to_regclass('public.symphony_schema'), 'SELECT') \
          ORDER BY n LIMIT 1",
    )
    .bind(privileges::RUNTIME_ROLES)
    .fetch_optional(&mut *connection)
    .await?;
    let owner: Option<bool> = sqlx::query_scalar(
        "SELECT pg_has_role(to_regrole('symphony_control')::oid, 'USAGE') OR (SELECT rolcreaterole FROM pg_roles WHERE rolname = current_user) \
           FROM pg_class WHERE oid = to_regclass('public.symphony_schema')",
    )
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
) -> Result<Option<(i32, String, String)>, MigrateError> {
    let exists: bool =
        sqlx::query_scalar("SELECT to_regclass('public.symphony_schema') IS NOT NULL")
            .fetch_one(&mut *connection)
            .await?;
    if !exists {
        return Ok(None);
    }
    // By name of the column, so that another version's stamp is read too.
    Ok(sqlx::query_as(
        "SELECT coalesce((to_jsonb(s)->>'schema_version')::int, 0), coalesce(to_jsonb(s)->>'tables_hash', ''), \
                coalesce(to_jsonb(s)->>'code_hash', '') FROM public.symphony_schema s",
    )
    .fetch_optional(connection)
    .await?)
}

async fn state_of(connection: &mut PgConnection) -> Result<(State, Vec<Difference>), MigrateError> {
    let installed: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_class WHERE relowner = to_regrole('symphony_control') AND relkind = 'r')",
    )
    .fetch_one(&mut *connection)
    .await?;
    if !installed {
        return Ok((State::NotInstalled, Vec::new()));
    }
    let differences = catalog::differences(connection).await?;
    let tables_differ = differences.iter().any(Difference::is_of_tables);
    let state = match stamp(connection).await? {
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
