//! Comparing the live database with what was declared: what `symphony doctor` reports.

use serde::Serialize;
use sqlx::postgres::PgConnection;

use super::DbError;
use super::privileges::{FUNCTIONS, OWNER, RUNTIME_ROLES, TABLES};

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

/// Every way in which the live privileges differ from the declared matrix. Empty when all is well.
///
/// Asked with `has_*_privilege`, so that inherited rights and PUBLIC count, and additionally by reading
/// the ACLs, so that a grant to a login nobody declared is found too.
pub async fn privilege_differences(
    connection: &mut PgConnection,
) -> Result<Vec<PrivilegeDifference>, DbError> {
    let mut differences = Vec::new();
    let mut tables = Vec::new();
    for (table, readers) in TABLES {
        tables.push(*table);
        let live: Vec<(String, String)> = sqlx::query_as(
            "SELECT r.role, p.privilege FROM unnest($1::text[]) r(role) \
              CROSS JOIN unnest(ARRAY['SELECT','INSERT','UPDATE','DELETE','TRUNCATE','REFERENCES','TRIGGER'] \
                  || CASE WHEN current_setting('server_version_num')::int >= 170000 THEN ARRAY['MAINTAIN'] ELSE '{}' END) p(privilege) \
              WHERE CASE WHEN p.privilege IN ('SELECT','INSERT','UPDATE','REFERENCES') \
                         THEN has_any_column_privilege(r.role, $2::text, p.privilege) \
                         ELSE has_table_privilege(r.role, $2::text, p.privilege) END",
        )
        .bind(asked_roles())
        .bind(format!("public.{table}"))
        .fetch_all(&mut *connection)
        .await?;
        for role in asked_roles() {
            let declared = readers.contains(&role.as_str());
            let has_select = live.iter().any(|(r, p)| *r == role && p == "SELECT");
            if declared && !has_select {
                differences.push(difference(&role, "SELECT", table, false));
            }
        }
        for (role, privilege) in live {
            if privilege != "SELECT" || !readers.contains(&role.as_str()) {
                differences.push(difference(&role, &privilege, table, true));
            }
        }
    }
    let mut functions = Vec::new();
    for (function, callers) in FUNCTIONS {
        functions.push(*function);
        let live: Vec<String> = sqlx::query_scalar(
            "SELECT DISTINCT r.role FROM pg_proc p CROSS JOIN unnest($1::text[]) r(role) \
              WHERE p.proname = $2 AND p.proowner = $3::text::regrole \
                AND has_function_privilege(r.role, p.oid, 'EXECUTE')",
        )
        .bind(asked_roles())
        .bind(function)
        .bind(OWNER)
        .fetch_all(&mut *connection)
        .await?;
        for role in asked_roles() {
            match (callers.contains(&role.as_str()), live.contains(&role)) {
                (true, false) => differences.push(difference(&role, "EXECUTE", function, false)),
                (false, true) => differences.push(difference(&role, "EXECUTE", function, true)),
                _ => {}
            }
        }
    }
    differences.extend(undeclared(connection, &tables, &functions).await?);
    differences.sort();
    differences.dedup();
    Ok(differences)
}

/// Objects nobody declared, and grants to logins nobody declared.
async fn undeclared(
    connection: &mut PgConnection,
    tables: &[&str],
    functions: &[&str],
) -> Result<Vec<PrivilegeDifference>, DbError> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT 'PUBLIC', 'undeclared object', relname::text FROM pg_class \
          WHERE relowner = $1::text::regrole AND relkind IN ('r', 'v', 'm', 'p', 'f') AND relname <> ALL ($2) \
         UNION ALL \
         SELECT 'PUBLIC', 'undeclared object', proname::text FROM pg_proc \
          WHERE proowner = $1::text::regrole AND proname <> ALL ($3) \
         UNION ALL \
         SELECT a.grantee::regrole::text, a.privilege_type, c.relname::text \
           FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a \
          WHERE c.relowner = $1::text::regrole AND a.grantee <> 0 AND a.grantee <> c.relowner \
            AND a.grantee::regrole::text <> ALL ($4) \
         UNION ALL \
         SELECT a.grantee::regrole::text, a.privilege_type, p.proname::text \
           FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a \
          WHERE p.proowner = $1::text::regrole AND a.grantee <> 0 AND a.grantee <> p.proowner \
            AND a.grantee::regrole::text <> ALL ($4) \
         UNION ALL \
         SELECT r.role, 'CREATE', 'schema public' FROM unnest($4::text[] || $1::text) r(role) \
          WHERE has_schema_privilege(r.role, 'public', 'CREATE') \
         UNION ALL \
         SELECT r.role, p.privilege, 'schema symphony_internal' FROM unnest($4::text[] || 'public'::text) r(role) \
          CROSS JOIN unnest(ARRAY['CREATE', 'USAGE']) p(privilege) \
          WHERE has_schema_privilege(r.role, 'symphony_internal', p.privilege)",
    )
    .bind(OWNER)
    .bind(tables)
    .bind(functions)
    .bind(RUNTIME_ROLES)
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
                current_setting('server_encoding') AS encoding",
    )
    .fetch_one(connection)
    .await?)
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

/// Of the hot tables.
pub async fn bloat(connection: &mut PgConnection) -> Result<Vec<Bloat>, DbError> {
    Ok(sqlx::query_as(
        "SELECT relname::text AS table_name, n_live_tup AS live_rows, n_dead_tup AS dead_rows, \
                pg_total_relation_size(relid) AS bytes \
           FROM pg_stat_user_tables \
          WHERE schemaname = 'public' AND relname IN ('payment_outbox_pending', 'participant_outbox_sequences', 'payment_outbox_workers') \
          ORDER BY relname",
    )
    .fetch_all(connection)
    .await?)
}

/// How many contradictions of each lane nobody has closed; lanes without any are left out.
pub async fn open_incidents(connection: &mut PgConnection) -> Result<Vec<(String, i64)>, DbError> {
    Ok(sqlx::query_as(
        "SELECT lane, count(*) FROM public.outbox_incidents GROUP BY lane ORDER BY lane",
    )
    .fetch_all(connection)
    .await?)
}

/// Invariants that can be checked while everything runs; each line is one violation.
pub async fn violated_invariants(connection: &mut PgConnection) -> Result<Vec<String>, DbError> {
    Ok(sqlx::query_scalar(
        "SELECT format('participant %s: numbers %s to %s are missing', participant_id, missing_from, missing_to) \
           FROM public.participant_sequence_gaps \
         UNION ALL \
         SELECT format('item %s is pending although it ended %s', p.outbox_id, a.state) \
           FROM public.payment_outbox_pending p JOIN public.payment_outbox_attempts a \
             ON a.outbox_id = p.outbox_id AND a.state IN ('DISPATCHED', 'FAILED') \
         UNION ALL \
         SELECT format('FIFO lane %s/%s: its first item waits for nobody', h.participant_id, h.rail_type) \
           FROM public.payment_outbox_pending h \
          WHERE h.hold = 'BEHIND_HEAD' \
            AND NOT EXISTS (SELECT FROM public.payment_outbox_pending e WHERE e.participant_id = h.participant_id \
                              AND e.rail_type = h.rail_type AND e.lane_position > 0 \
                              AND (e.lane_position < h.lane_position OR e.lease_token IS NOT NULL)) \
            AND NOT EXISTS (SELECT FROM public.payment_outbox_blocked_lanes b \
                             WHERE b.participant_id = h.participant_id AND b.rail_type = h.rail_type) \
         UNION ALL \
         SELECT format('event at %s of bucket %s waits behind a key that is not blocked', w.position, w.bucket) \
           FROM public.event_outbox_waiting w \
          WHERE NOT EXISTS (SELECT FROM public.event_outbox_blocked k WHERE k.bucket = w.bucket AND k.event_key = w.event_key) \
         UNION ALL \
         SELECT format('a key of bucket %s is blocked for nothing', k.bucket) \
           FROM public.event_outbox_blocked k \
          WHERE k.failed_position IS NULL \
            AND NOT EXISTS (SELECT FROM public.event_outbox_waiting w WHERE w.bucket = k.bucket AND w.event_key = k.event_key) \
         LIMIT 100",
    )
    .fetch_all(connection)
    .await?)
}
