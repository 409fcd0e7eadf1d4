//! Installing the schema: one transaction, idempotent, safe to interrupt and to repeat.
//!
//! Works without superuser, given CREATEROLE and ownership of the database (as on Aurora and RDS): the
//! migrating login becomes a member of the owner role for the length of the transaction, and no longer.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::DbError;
use crate::schema::{self, SCHEMA_VERSION, Section};

/// Serialises migrations of one database.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(1398362189, 0)";
/// Another database of the cluster may be creating the same roles: how often to start over.
const TRIES: u32 = 20;
const TRY_PAUSE: Duration = Duration::from_millis(100);

/// What the caller allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Drop an older installation's table, type and view, if nothing unfinished is in them.
    pub replace_legacy: bool,
    /// Drop everything Symphony owns in this database first, ledger included.
    pub fresh: bool,
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
    /// Stamped as this build's, but the live catalog was changed by hand: `migrate` restores it.
    ChangedByHand,
    /// Other tables: until 1.0 only `--fresh` helps.
    TablesDiffer,
    /// Installed by a newer version.
    Newer,
}

/// Why a migration did not happen. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
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
        "this database has other tables than this build (until 1.0 they change in place): keep the older symphony, or recreate everything, ledger included, with `symphony migrate --fresh --yes`"
    )]
    TablesDiffer,
    /// An older installation.
    #[error(
        "an older installation is here ({found}): `symphony migrate --replace-legacy` drops it, if it holds no unfinished rows"
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

impl From<sqlx::Error> for MigrateError {
    fn from(error: sqlx::Error) -> Self {
        match DbError::from(error) {
            DbError::MissingPrivilege { message } => Self::Privilege { message },
            other => Self::Db(other),
        }
    }
}

/// Bring the database to this build's schema. Answers the state it was in before.
pub async fn migrate(server: &PgConnectOptions, options: Options) -> Result<State, MigrateError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_migrate(server, options).await {
            Err(MigrateError::Db(error)) if tries < TRIES && is_role_race(&error) => {
                tokio::time::sleep(TRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Two databases of one cluster touched the same role at once; the loser starts over.
fn is_role_race(error: &DbError) -> bool {
    match error {
        DbError::Retry { .. } => true,
        DbError::Integrity { constraint } => constraint.starts_with("pg_"),
        DbError::Refused { sqlstate, message } => {
            sqlstate == "42710" || (sqlstate == "XX000" && message.contains("concurrently"))
        }
        _ => false,
    }
}

async fn try_migrate(server: &PgConnectOptions, options: Options) -> Result<State, MigrateError> {
    let mut connection = server.connect().await?;
    let mut transaction = connection.begin().await?;
    sqlx::query(MIGRATION_LOCK).execute(&mut *transaction).await?;
    replace_legacy(&mut transaction, options).await?;
    run(&mut transaction, &schema::script(Section::Roles)).await?;
    run(&mut transaction, BECOME_OWNER).await?;
    // Looked at as the owner: a login without superuser may not even read the stamp.
    let before = state_of(&mut transaction).await?;
    match before {
        State::Newer => {
            return Err(MigrateError::Newer {
                installed: stamp(&mut transaction).await?.map_or(0, |s| s.0),
            });
        }
        State::TablesDiffer if !options.fresh => return Err(MigrateError::TablesDiffer),
        _ => {}
    }
    if options.fresh {
        run(&mut transaction, DROP_EVERYTHING).await?;
        run(&mut transaction, BECOME_OWNER).await?;
    }
    let fresh = options.fresh || before == State::NotInstalled;
    if fresh {
        run(&mut transaction, &schema::script(Section::Tables)).await?;
    }
    if fresh || before != State::UpToDate {
        run(&mut transaction, DROP_CODE).await?;
        run(&mut transaction, &schema::script(Section::Functions)).await?;
        if fresh || before == State::ChangedByHand {
            run(&mut transaction, &schema::script(Section::Triggers)).await?;
        }
        run(&mut transaction, &schema::script(Section::Views)).await?;
    }
    run(&mut transaction, &schema::script(Section::Privileges)).await?;
    run(&mut transaction, &stamp_sql()).await?;
    run(&mut transaction, LEAVE_OWNER).await?;
    // A pooler may lend this session to others next: no name stays behind.
    transaction.clear_cached_statements().await?;
    transaction.commit().await?;
    connection.close().await?;
    Ok(before)
}

/// Compare the installed schema with this build's. Changes nothing.
pub async fn check(connection: &mut PgConnection) -> Result<State, MigrateError> {
    let may_read: Option<bool> = sqlx::query_scalar(
        "SELECT has_table_privilege(to_regclass('public.symphony_schema')::oid, 'SELECT') \
            AND has_function_privilege(to_regprocedure('public.symphony_fingerprint()')::oid, 'EXECUTE')",
    )
    .fetch_one(&mut *connection)
    .await?;
    if may_read != Some(false) {
        return state_of(connection).await;
    }
    // The migrating login itself: it looks as the owner, in a transaction that is rolled back.
    let mut transaction = connection.begin().await?;
    become_owner_to_look(&mut transaction).await?;
    let state = state_of(&mut transaction).await;
    transaction.rollback().await?;
    state
}

/// Look as the owner for the rest of a transaction that will be rolled back, where the login may not read by itself: the
/// installing login can, and is no reader.
pub async fn look_as_owner(transaction: &mut PgConnection) -> Result<(), MigrateError> {
    let may_read: bool =
        sqlx::query_scalar("SELECT has_table_privilege('public.payment_outbox_pending', 'SELECT')")
            .fetch_one(&mut *transaction)
            .await?;
    if may_read { Ok(()) } else { become_owner_to_look(transaction).await }
}

async fn become_owner_to_look(transaction: &mut PgConnection) -> Result<(), MigrateError> {
    let login: String =
        sqlx::query_scalar("SELECT session_user::text").fetch_one(&mut *transaction).await?;
    run(transaction, BECOME_OWNER).await.map_err(|error| match error {
        MigrateError::Privilege { .. } => DbError::MissingRole { login, roles: LOOKERS }.into(),
        other => other,
    })
}

/// Who may look without being the login that migrates.
const LOOKERS: &[&str] = &["symphony_auditor", "symphony_operator", "symphony_approver"];

/// The whole migration as a script for `psql`, for teams that apply it with their own tool. Idempotent.
pub fn print() -> String {
    let mut script = String::from(
        "-- Symphony's schema, as `symphony migrate` applies it to a new database. Run with: psql -v ON_ERROR_STOP=1 -f\n\
         BEGIN;\n",
    );
    for part in [
        format!("{MIGRATION_LOCK};"),
        REFUSE_OTHERS
            .replace("@VERSION@", &SCHEMA_VERSION.to_string())
            .replace("@TABLES@", &schema::tables_hash()),
        schema::script(Section::Roles),
        BECOME_OWNER.to_owned(),
        schema::script(Section::Tables),
        DROP_CODE.to_owned(),
        schema::script(Section::Functions),
        schema::script(Section::Triggers),
        schema::script(Section::Views),
        schema::script(Section::Privileges),
        stamp_sql(),
        LEAVE_OWNER.to_owned(),
    ] {
        script.push_str(&part);
        script.push('\n');
    }
    script.push_str("COMMIT;\n");
    script
}

async fn run(connection: &mut PgConnection, script: &str) -> Result<(), MigrateError> {
    // Our own embedded text, never a user's.
    sqlx::raw_sql(AssertSqlSafe(script)).execute(connection).await?;
    Ok(())
}

/// (version, tables hash, code hash, fingerprint), if there is a stamp.
async fn stamp(
    connection: &mut PgConnection,
) -> Result<Option<(i32, String, String, String)>, MigrateError> {
    let exists: bool =
        sqlx::query_scalar("SELECT to_regclass('public.symphony_schema') IS NOT NULL")
            .fetch_one(&mut *connection)
            .await?;
    if !exists {
        return Ok(None);
    }
    Ok(sqlx::query_as(
        "SELECT schema_version, tables_hash, code_hash, fingerprint FROM public.symphony_schema",
    )
    .fetch_optional(connection)
    .await?)
}

async fn state_of(connection: &mut PgConnection) -> Result<State, MigrateError> {
    let Some((version, tables, code, fingerprint)) = stamp(connection).await? else {
        return Ok(State::NotInstalled);
    };
    if version > SCHEMA_VERSION {
        return Ok(State::Newer);
    }
    if version < SCHEMA_VERSION || tables != schema::tables_hash() {
        return Ok(State::TablesDiffer);
    }
    if code != schema::code_hash() {
        return Ok(State::CodeDiffers);
    }
    let live: Option<String> = if sqlx::query_scalar(
        "SELECT to_regprocedure('public.symphony_fingerprint()') IS NOT NULL",
    )
    .fetch_one(&mut *connection)
    .await?
    {
        Some(sqlx::query_scalar(super::calls::FINGERPRINT.sql).fetch_one(connection).await?)
    } else {
        None
    };
    if live != Some(fingerprint) {
        return Ok(State::ChangedByHand);
    }
    Ok(State::UpToDate)
}

async fn replace_legacy(
    connection: &mut PgConnection,
    options: Options,
) -> Result<(), MigrateError> {
    let (table, kind): (bool, bool) = sqlx::query_as(
        "SELECT to_regclass('public.payment_outbox') IS NOT NULL, to_regtype('public.outbox_status') IS NOT NULL",
    )
    .fetch_one(&mut *connection)
    .await?;
    let found = match (table, kind) {
        (false, false) => return Ok(()),
        (true, false) => "table payment_outbox",
        (false, true) => "type outbox_status",
        (true, true) => "table payment_outbox, type outbox_status",
    };
    if !options.replace_legacy {
        return Err(MigrateError::Legacy { found: found.to_owned() });
    }
    if table {
        // Locked first: a row must not slip in between the count and the drop.
        run(connection, "LOCK TABLE public.payment_outbox IN ACCESS EXCLUSIVE MODE").await?;
        let has_status: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'public.payment_outbox'::regclass \
                AND attname = 'status' AND NOT attisdropped)",
        )
        .fetch_one(&mut *connection)
        .await?;
        // Whatever is not known to be an end counts as unfinished.
        let unfinished = if has_status {
            "SELECT count(*) FROM public.payment_outbox WHERE status IS NULL \
                OR upper(status::text) NOT IN ('DISPATCHED', 'COMPLETED', 'SENT', 'FAILED', 'CANCELLED')"
        } else {
            "SELECT count(*) FROM public.payment_outbox"
        };
        let rows: i64 = sqlx::query_scalar(unfinished).fetch_one(&mut *connection).await?;
        if rows > 0 {
            return Err(MigrateError::LegacyUnfinished { rows });
        }
    }
    run(connection, DROP_LEGACY).await
}

fn stamp_sql() -> String {
    STAMP
        .replace("@VERSION@", &SCHEMA_VERSION.to_string())
        .replace("@TABLES@", &schema::tables_hash())
        .replace("@CODE@", &schema::code_hash())
}

/// The owner role for the length of this transaction. A superuser needs no membership, and gets none.
const BECOME_OWNER: &str = r"
SET LOCAL client_min_messages = warning;
DO $$ BEGIN
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        EXECUTE pg_catalog.format('GRANT symphony_control TO %I', current_user);
    END IF;
END $$;
CREATE SCHEMA IF NOT EXISTS symphony_internal AUTHORIZATION symphony_control;
GRANT CREATE ON SCHEMA public TO symphony_control;
GRANT USAGE ON SCHEMA public TO symphony_control, symphony_ingest, symphony_executor, symphony_operator,
    symphony_approver, symphony_readonly, symphony_auditor;
SET LOCAL ROLE symphony_control;
SET LOCAL search_path = pg_catalog, public;
";

/// Back to the login, and nothing of the owner's rights stays with it.
const LEAVE_OWNER: &str = r"
SET LOCAL ROLE NONE;
REVOKE CREATE ON SCHEMA public FROM symphony_control;
DO $$ BEGIN
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        EXECUTE pg_catalog.format('REVOKE symphony_control FROM %I', current_user);
    END IF;
END $$;
";

/// Functions and views exist once, as their current text: the old ones go first, so that a changed signature
/// leaves no second version behind. What tables and triggers depend on is replaced in place.
const DROP_CODE: &str = r"
DO $$
DECLARE
    v_name TEXT;
BEGIN
    FOR v_name IN SELECT oid::pg_catalog.regclass::TEXT FROM pg_catalog.pg_class
                   WHERE relowner = 'symphony_control'::pg_catalog.regrole AND relkind = 'v'
    LOOP
        EXECUTE 'DROP VIEW IF EXISTS ' || v_name || ' CASCADE';
    END LOOP;
    -- In one statement: some call each other.
    SELECT pg_catalog.string_agg(oid::pg_catalog.regprocedure::TEXT, ', ') INTO v_name FROM pg_catalog.pg_proc
     WHERE proowner = 'symphony_control'::pg_catalog.regrole AND prorettype <> 'trigger'::pg_catalog.regtype
       AND proname <> 'uuidv7';
    IF v_name IS NOT NULL THEN
        EXECUTE 'DROP FUNCTION ' || v_name;
    END IF;
END $$;
";

const DROP_EVERYTHING: &str = "DROP OWNED BY symphony_control CASCADE; SET LOCAL ROLE NONE;";

const DROP_LEGACY: &str = "DROP VIEW IF EXISTS public.supervisor_outbox_status; \
    DROP TABLE IF EXISTS public.payment_outbox; DROP TYPE IF EXISTS public.outbox_status;";

const STAMP: &str = r"
INSERT INTO public.symphony_schema (schema_version, tables_hash, code_hash, fingerprint)
VALUES (@VERSION@, '@TABLES@', '@CODE@', public.symphony_fingerprint())
ON CONFLICT (only_row) DO UPDATE
   SET schema_version = excluded.schema_version, tables_hash = excluded.tables_hash, code_hash = excluded.code_hash,
       fingerprint = excluded.fingerprint, applied_at = clock_timestamp()
 WHERE (symphony_schema.schema_version, symphony_schema.tables_hash, symphony_schema.code_hash, symphony_schema.fingerprint)
       IS DISTINCT FROM (excluded.schema_version, excluded.tables_hash, excluded.code_hash, excluded.fingerprint);
";

/// The printed script's own refusals; the command checks the same in Rust, with better words.
const REFUSE_OTHERS: &str = r"
DO $$
DECLARE
    v_version INT;
    v_tables  TEXT;
BEGIN
    IF pg_catalog.to_regclass('public.payment_outbox') IS NOT NULL OR pg_catalog.to_regtype('public.outbox_status') IS NOT NULL THEN
        RAISE EXCEPTION 'an older installation is here: symphony migrate --replace-legacy drops it';
    END IF;
    IF pg_catalog.to_regclass('public.symphony_schema') IS NULL THEN
        RETURN;
    END IF;
    SELECT schema_version, tables_hash INTO v_version, v_tables FROM public.symphony_schema;
    IF v_version > @VERSION@ THEN
        RAISE EXCEPTION 'this database has schema version %, newer than this script''s @VERSION@', v_version;
    ELSIF v_tables <> '@TABLES@' THEN
        RAISE EXCEPTION 'this database has other tables than this script: see symphony migrate --fresh';
    END IF;
END $$;
";
