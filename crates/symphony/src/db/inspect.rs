//! Comparing the live database with what was declared: what `symphony doctor` reports.

use std::fmt;

use serde::Serialize;
use sqlx::postgres::PgConnection;

use super::privileges::{
    FUNCTIONS, HIDDEN_FROM_READONLY, OWNER, READONLY, ROLES, RUNTIME_ROLES, TABLES,
};
use super::{DbError, Schema, calls, tables};

/// One difference between the live privileges and the declared ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PrivilegeDifference {
    /// The role, login or PUBLIC.
    pub role: String,
    /// The privilege.
    pub privilege: String,
    /// The table or function.
    pub object: String,
    /// It is there and should not be (`true`), or is missing (`false`).
    pub excess: bool,
}

impl PrivilegeDifference {
    /// Somebody else was allowed to read, which harms nobody but is worth knowing.
    pub fn is_reading_by_others(&self) -> bool {
        self.excess
            && self.privilege == "SELECT"
            && self.role != "public"
            && !ROLES.contains(&self.role.as_str())
    }
}

impl fmt::Display for PrivilegeDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = if self.excess { "has" } else { "lacks" };
        write!(f, "{} {has} {} on {}", self.role, self.privilege, self.object)
    }
}

/// Every way in which the live privileges differ from the declared matrix. Empty when all is well.
///
/// Asked with `has_*_privilege`, so that inherited rights and PUBLIC count, and additionally by reading
/// the ACLs, so that a grant to a login nobody declared is found too.
pub async fn privilege_differences(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<PrivilegeDifference>, DbError> {
    let mut differences = Vec::new();
    let tables: Vec<_> = TABLES.iter().map(|(table, _)| *table).collect();
    let live: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT t.name, r.role, p.privilege FROM unnest($2::text[]) t(name) \
           JOIN pg_class c ON c.relname = t.name AND c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = $3) \
          CROSS JOIN unnest($1::text[]) r(role) \
          CROSS JOIN unnest(ARRAY['SELECT','INSERT','UPDATE','DELETE','TRUNCATE','REFERENCES','TRIGGER'] \
              || CASE WHEN current_setting('server_version_num')::int >= 170000 THEN ARRAY['MAINTAIN'] ELSE '{}' END) p(privilege) \
          WHERE CASE WHEN p.privilege IN ('SELECT','INSERT','UPDATE','REFERENCES') \
                     THEN has_any_column_privilege(r.role, c.oid, p.privilege) \
                     ELSE has_table_privilege(r.role, c.oid, p.privilege) END",
    )
    .bind(asked_roles())
    .bind(&tables)
    .bind(schema.name())
    .fetch_all(&mut *connection)
    .await?;
    let missing: Vec<String> = sqlx::query_scalar(
        "SELECT t FROM unnest($1::text[]) t WHERE NOT EXISTS (\
             SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $2 AND c.relname = t)",
    )
    .bind(&tables)
    .bind(schema.name())
    .fetch_all(&mut *connection)
    .await?;
    for (table, readers) in TABLES {
        for role in readers.iter().filter(|_| !missing.iter().any(|name| name == table)) {
            if !live.iter().any(|(t, r, p)| t == table && r == role && p == "SELECT") {
                differences.push(difference(role, "SELECT", table, false));
            }
        }
        for (_, role, privilege) in live.iter().filter(|(name, _, _)| name == table) {
            if privilege != "SELECT" || !readers.contains(&role.as_str()) {
                differences.push(difference(role, privilege, table, true));
            }
        }
    }
    differences.extend(hidden_columns(connection, schema).await?);
    let functions: Vec<_> = FUNCTIONS.iter().map(|(function, _)| *function).collect();
    let live: Vec<(String, String)> = sqlx::query_as(
        "SELECT DISTINCT p.proname::text, r.role FROM pg_proc p CROSS JOIN unnest($1::text[]) r(role) \
          WHERE p.proname = ANY ($2::text[]) AND p.proowner = $3::text::regrole AND p.pronamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = $4) \
            AND has_function_privilege(r.role, p.oid, 'EXECUTE')",
    )
    .bind(asked_roles())
    .bind(&functions)
    .bind(OWNER)
    .bind(schema.name())
    .fetch_all(&mut *connection)
    .await?;
    for (function, callers) in FUNCTIONS {
        for role in asked_roles() {
            let has = live.iter().any(|(f, r)| f == function && *r == role);
            if has != callers.contains(&role.as_str()) {
                differences.push(difference(&role, "EXECUTE", function, has));
            }
        }
    }
    differences.extend(undeclared(connection, schema, &tables, &functions).await?);
    differences.sort();
    differences.dedup();
    Ok(differences)
}

/// Where `symphony_readonly` sees a column that is hidden from it, or does not see one that is not.
async fn hidden_columns(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<PrivilegeDifference>, DbError> {
    let readable: Vec<_> = TABLES
        .iter()
        .filter(|(_, readers)| readers.contains(&READONLY))
        .map(|(table, _)| *table)
        .collect();
    let columns: Vec<(String, String, bool)> = sqlx::query_as(
        "SELECT t.name, k.attname::text, has_column_privilege($1::text, k.attrelid, k.attnum, 'SELECT') \
           FROM unnest($2::text[]) t(name) \
           JOIN pg_class c ON c.relname = t.name AND c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = $3) \
           JOIN pg_attribute k ON k.attrelid = c.oid \
          WHERE k.attnum > 0 AND NOT k.attisdropped",
    )
    .bind(READONLY)
    .bind(readable)
    .bind(schema.name())
    .fetch_all(connection)
    .await?;
    Ok(columns
        .into_iter()
        .filter_map(|(table, column, sees)| {
            let is_hidden = HIDDEN_FROM_READONLY
                .iter()
                .any(|(name, hidden)| *name == table && hidden.contains(&column.as_str()));
            let object = format!("{table}.{column}");
            (sees == is_hidden).then(|| difference(READONLY, "SELECT", &object, sees))
        })
        .collect())
}

/// Objects nobody declared, and grants to logins nobody declared.
async fn undeclared(
    connection: &mut PgConnection,
    schema: &Schema,
    tables: &[&str],
    functions: &[&str],
) -> Result<Vec<PrivilegeDifference>, DbError> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(
        "WITH others AS (SELECT c.relnamespace AS oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                          WHERE c.relname = 'symphony_schema' AND c.relkind = 'r' AND c.relowner = $1::text::regrole \
                            AND n.nspname <> $5), \
              relations AS (SELECT * FROM pg_class WHERE relnamespace NOT IN (SELECT oid FROM others)), \
              routines AS (SELECT * FROM pg_proc WHERE pronamespace NOT IN (SELECT oid FROM others)) \
         SELECT 'PUBLIC', 'undeclared object', relname::text FROM relations \
          WHERE relowner = $1::text::regrole AND relkind IN ('r', 'v', 'm', 'p', 'f') AND relname <> ALL ($2) \
         UNION ALL \
         SELECT 'PUBLIC', 'undeclared object', proname::text FROM routines \
          WHERE proowner = $1::text::regrole AND proname <> ALL ($3) \
         UNION ALL \
         SELECT a.grantee::regrole::text, a.privilege_type, c.relname::text \
           FROM relations c CROSS JOIN LATERAL aclexplode(c.relacl) a \
          WHERE c.relowner = $1::text::regrole AND a.grantee <> 0 AND a.grantee <> c.relowner \
            AND a.grantee::regrole::text <> ALL ($4) \
         UNION ALL \
         SELECT a.grantee::regrole::text, a.privilege_type, p.proname::text \
           FROM routines p CROSS JOIN LATERAL aclexplode(p.proacl) a \
          WHERE p.proowner = $1::text::regrole AND a.grantee <> 0 AND a.grantee <> p.proowner \
            AND a.grantee::regrole::text <> ALL ($4) \
         UNION ALL \
         SELECT a.grantee::regrole::text, a.privilege_type, format('%s.%s', c.relname, k.attname) \
           FROM relations c JOIN pg_attribute k ON k.attrelid = c.oid CROSS JOIN LATERAL aclexplode(k.attacl) a \
          WHERE c.relowner = $1::text::regrole AND a.grantee <> 0 AND a.grantee <> c.relowner \
            AND a.grantee::regrole::text <> ALL ($4) \
         UNION ALL \
         SELECT r.role, p.privilege, c.relname::text \
           FROM relations c CROSS JOIN unnest($4::text[] || 'public'::text) r(role) \
          CROSS JOIN unnest(ARRAY['USAGE', 'SELECT', 'UPDATE']) p(privilege) \
          WHERE c.relowner = $1::text::regrole AND c.relkind = 'S' AND has_sequence_privilege(r.role, c.oid, p.privilege) \
         UNION ALL \
         SELECT r.role, 'CREATE', 'schema ' || $5 FROM unnest($4::text[] || CASE WHEN $6 THEN $1::text END) r(role) \
           JOIN pg_namespace n ON n.nspname = $5 AND has_schema_privilege(r.role, n.oid, 'CREATE')",
    )
    .bind(OWNER)
    .bind(tables)
    .bind(functions)
    .bind(RUNTIME_ROLES)
    .bind(schema.name())
    .bind(schema.is_shared())
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(role, privilege, object)| difference(&role, &privilege, &object, true))
        .collect())
}

/// Every role the matrix speaks of, and PUBLIC, which must never have anything.
fn asked_roles() -> Vec<String> {
    RUNTIME_ROLES.iter().map(|role| (*role).to_owned()).chain(["public".to_owned()]).collect()
}

fn difference(role: &str, privilege: &str, object: &str, excess: bool) -> PrivilegeDifference {
    PrivilegeDifference {
        role: role.to_owned(),
        privilege: privilege.to_owned(),
        object: object.to_owned(),
        excess,
    }
}

/// Facts about the server that decide whether the promises can be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ServerFacts {
    /// Such as 150018.
    pub version_num: i32,
    /// Such as 15.18.
    pub version: String,
    /// Commits reach the disk.
    pub fsync: String,
    /// Commits are durable before they are answered.
    pub synchronous_commit: String,
    /// Torn pages are repaired after a crash.
    pub full_page_writes: String,
    /// Old row versions are removed.
    pub autovacuum: String,
    /// Connections allowed.
    pub max_connections: i32,
    /// The oldest open snapshot, in seconds: it keeps dead rows alive.
    pub oldest_snapshot_seconds: i64,
    /// Whether the encoding is UTF8.
    pub encoding: String,
    /// Statements are logged with the values that are bound to them.
    pub logs_bound_values: bool,
}

/// Read them.
pub async fn server_facts(connection: &mut PgConnection) -> Result<ServerFacts, DbError> {
    Ok(sqlx::query_as(
        "SELECT current_setting('server_version_num')::int AS version_num, current_setting('server_version') AS version, \
                current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit, \
                current_setting('full_page_writes') AS full_page_writes, current_setting('autovacuum') AS autovacuum, \
                current_setting('max_connections')::int AS max_connections, \
                coalesce((SELECT extract(epoch FROM max(now() - xact_start)) FROM pg_stat_activity \
                           WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), 0)::bigint AS oldest_snapshot_seconds, \
                current_setting('server_encoding') AS encoding, \
                (current_setting('log_statement') = 'all' OR current_setting('log_min_duration_statement') <> '-1' \
                  OR current_setting('log_min_duration_sample') <> '-1' OR current_setting('log_transaction_sample_rate') <> '0') \
                 AND current_setting('log_parameter_max_length') <> '0' AS logs_bound_values",
    )
    .fetch_one(connection)
    .await?)
}

/// A transaction that has told events and has not ended: events behind it wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct OpenProducer {
    /// Its session; `None` for a prepared transaction.
    pub pid: Option<i32>,
    /// Who.
    pub login: Option<String>,
    /// By its own word.
    pub application: Option<String>,
    /// For how long the oldest event behind it has waited; `None` if none does.
    pub delays_seconds: Option<i64>,
}

/// All of them, those that delay others first.
pub async fn open_producers(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<OpenProducer>, DbError> {
    Ok(sqlx::query_as(schema.sql(calls::OPEN_PRODUCERS.sql)).fetch_all(connection).await?)
}

/// Who can become the owner, and so switch the ledger's guards off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct OwnerAccess {
    /// The role.
    pub role: String,
    /// How.
    pub how: String,
}

/// Members of the owner role, and on PostgreSQL 15 whoever may make itself one. Superusers are not listed.
pub async fn owner_access(connection: &mut PgConnection) -> Result<Vec<OwnerAccess>, DbError> {
    let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
        .fetch_one(&mut *connection)
        .await?;
    // From 16 on a membership may carry ADMIN only, as the creator's does: it can grant itself the rest.
    let sql = if version >= 160_000 {
        "SELECT m.member::regrole::text AS role, \
                CASE WHEN m.set_option OR m.inherit_option THEN 'member' ELSE 'admin option' END AS how \
           FROM pg_auth_members m WHERE m.roleid = 'symphony_control'::regrole ORDER BY 1"
    } else {
        "SELECT m.member::regrole::text AS role, 'member' AS how \
           FROM pg_auth_members m WHERE m.roleid = 'symphony_control'::regrole \
         UNION ALL SELECT rolname::text, 'CREATEROLE on PostgreSQL 15' FROM pg_roles WHERE rolcreaterole AND NOT rolsuper \
         ORDER BY 1"
    };
    Ok(sqlx::query_as(sql).fetch_all(connection).await?)
}

/// Logins that may make tokens for anybody and act themselves: alone they could be both persons of an approval. Superusers
/// are not listed.
pub async fn token_makers_who_act(connection: &mut PgConnection) -> Result<Vec<String>, DbError> {
    // From 16 on a membership may go without the right to SET ROLE.
    let sql = "SELECT l.rolname::text FROM pg_roles l \
                CROSS JOIN (SELECT CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END AS way) w \
                WHERE l.rolcanlogin AND NOT l.rolsuper AND pg_has_role(l.oid, 'symphony_auth', w.way) \
                  AND (pg_has_role(l.oid, 'symphony_operator', w.way) OR pg_has_role(l.oid, 'symphony_approver', w.way)) \
                ORDER BY 1 LIMIT 20";
    Ok(sqlx::query_scalar(sql).fetch_all(connection).await?)
}

/// What makes the queue slow: dead rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct Bloat {
    /// The table.
    pub table_name: String,
    /// Rows alive.
    pub live_rows: i64,
    /// Rows dead and not yet removed.
    pub dead_rows: i64,
    /// Its size on disk, indexes included.
    pub bytes: i64,
}

/// Of the hot tables of every lane.
pub async fn bloat(connection: &mut PgConnection, schema: &Schema) -> Result<Vec<Bloat>, DbError> {
    Ok(sqlx::query_as(
        "SELECT relname::text AS table_name, n_live_tup AS live_rows, n_dead_tup AS dead_rows, \
                pg_total_relation_size(relid) AS bytes \
           FROM pg_stat_user_tables \
          WHERE schemaname = $1 AND relname = ANY ($2) ORDER BY relname",
    )
    .bind(schema.name())
    .bind(tables::of_kind(tables::TableKind::Hot))
    .fetch_all(connection)
    .await?)
}

/// How many acts of each lane wait for a second person; lanes without any are left out.
pub async fn waiting_approvals(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<(String, i64)>, DbError> {
    Ok(sqlx::query_as(
        schema.sql("SELECT lane, requests FROM symphony.outbox_waiting_approvals ORDER BY lane"),
    )
    .fetch_all(connection)
    .await?)
}

/// How many contradictions of each lane nobody has closed; lanes without any are left out.
pub async fn open_incidents(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<(String, i64)>, DbError> {
    Ok(sqlx::query_as(
        schema.sql(
            "SELECT lane, count(*) FROM symphony.outbox_incidents GROUP BY lane ORDER BY lane",
        ),
    )
    .fetch_all(connection)
    .await?)
}
