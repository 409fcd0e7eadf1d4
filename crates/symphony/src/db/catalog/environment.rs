//! What is around the schema and can undo its promises: settings by role or database, predefined roles, event triggers.

use sqlx::PgConnection;

use crate::db::privileges::{FUNCTIONS, RUNTIME_ROLES};
use crate::db::{DbError, Schema};

/// One thing found around the schema.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, sqlx::FromRow)]
pub struct Finding {
    /// It undoes a promise; otherwise it is only worth knowing.
    pub fails: bool,
    /// In one line.
    pub finding: String,
}

/// A login counts if it has one of the runtime roles; others are their owners' business.
const FINDINGS: &str = "
    WITH RECURSIVE runtime(oid) AS (
        SELECT r.oid FROM pg_roles r WHERE r.rolname = ANY ($1)
        UNION
        SELECT m.member FROM pg_auth_members m JOIN runtime r ON r.oid = m.roleid
    ), set_values AS (
        SELECT s.setrole, s.setdatabase, split_part(c.entry, '=', 1) AS name, substr(c.entry, strpos(c.entry, '=') + 1) AS value
          FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) c(entry)
         WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
           AND (s.setrole = 0 OR s.setrole IN (SELECT oid FROM runtime))
    ), paths AS (
        SELECT v.setrole, v.setdatabase, v.value, btrim(p.entry, ' \"') AS schema_name, p.n
          FROM set_values v CROSS JOIN LATERAL string_to_table(v.value, ',') WITH ORDINALITY p(entry, n)
         WHERE v.name = 'search_path'
    ), dangerous AS (
        SELECT v.setrole, v.setdatabase, v.name, v.value,
               CASE v.name WHEN 'synchronous_commit' THEN 'a crash can undo an answered commit and pay twice'
                           WHEN 'session_replication_role' THEN 'wake-ups and foreign keys do not fire' -- symphony-guard: allow, it is looked for
                           WHEN 'default_transaction_read_only' THEN 'nothing can be written'
                           ELSE 'our functions would run in another way than they were tested' END AS why
          FROM set_values v
         WHERE (v.name, v.value) IN (('synchronous_commit', 'off'), ('transform_null_equals', 'on'),
                                     ('default_transaction_read_only', 'on'), ('standard_conforming_strings', 'off'))
            OR v.name = 'session_replication_role' AND v.value <> 'origin' -- symphony-guard: allow, it is looked for
            OR v.name IN ('role', 'row_security', 'session_preload_libraries', 'local_preload_libraries', 'plpgsql.variable_conflict')
        UNION ALL
        SELECT DISTINCT p.setrole, p.setdatabase, 'search_path', p.value, 'names would not mean what they mean to us'
          FROM paths p
         WHERE p.schema_name = 'pg_catalog' AND p.n > 1
            OR p.schema_name NOT IN ('public', $3) AND EXISTS (
                   SELECT FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
                    WHERE n.nspname = p.schema_name AND f.proname = ANY ($2) AND f.proowner <> to_regrole('symphony_control'))
    )
    SELECT true AS fails, format('setting %s = %s of %s: %s', d.name, d.value,
               concat_ws(' in ', CASE d.setrole WHEN 0 THEN 'every role' ELSE 'role ' || d.setrole::regrole END,
                         CASE d.setdatabase WHEN 0 THEN 'every database' ELSE 'this database' END), d.why) AS finding
      FROM dangerous d
    UNION ALL
    SELECT r.oid IN (SELECT oid FROM runtime),
           format('predefined role: %s is a member of %s, which reaches past every grant of ours', r.rolname, p.rolname)
      FROM pg_roles p JOIN pg_roles r ON pg_has_role(r.oid, p.oid, 'MEMBER') AND NOT r.rolsuper AND r.oid >= 16384
     WHERE p.rolname IN ('pg_write_all_data', 'pg_read_all_data', 'pg_maintain', 'pg_write_server_files', 'pg_read_server_files',
                         'pg_execute_server_program')
    UNION ALL
    SELECT NOT (o.rolsuper AND f.rolsuper),
           format('event trigger %s of %s runs function %s.%s of %s whenever the schema is changed, as whoever changes it',
                  e.evtname, o.rolname, p.pronamespace::regnamespace, p.proname, f.rolname)
      FROM pg_event_trigger e JOIN pg_proc p ON p.oid = e.evtfoid JOIN pg_roles o ON o.oid = e.evtowner JOIN pg_roles f ON f.oid = p.proowner
     WHERE e.evtenabled <> 'D'
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_event_trigger'::regclass AND d.objid = e.oid AND d.deptype = 'e')
    UNION ALL
    -- In a schema of our own that is a grant like any other. The database's owner installs us, and is trusted as such.
    SELECT true, format('schema %s: role %s may create in it, and so put an overload of one of our functions there that runs as the owner; '
                        'revoke that, or install into a schema of its own', n.nspname, r.rolname)
      FROM pg_namespace n JOIN pg_roles r ON has_schema_privilege(r.oid, n.oid, 'CREATE') AND NOT r.rolsuper AND r.oid >= 16384
      JOIN pg_database d ON d.datname = current_database() AND NOT pg_has_role(r.oid, d.datdba, 'MEMBER')
     WHERE n.nspname = $3 AND n.nspowner IS DISTINCT FROM to_regrole('symphony_control') AND r.rolname <> 'symphony_control'
     ORDER BY 1 DESC, 2";

/// Everything found, the worst first. Needs no privilege.
pub async fn findings(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<Vec<Finding>, DbError> {
    let functions: Vec<_> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
    Ok(sqlx::query_as(FINDINGS)
        .bind(RUNTIME_ROLES)
        .bind(functions)
        .bind(schema.name())
        .fetch_all(connection)
        .await?)
}

/// What fails, and what is only worth knowing.
pub fn split(findings: Vec<Finding>) -> (Vec<String>, Vec<String>) {
    let (failing, notes): (Vec<_>, Vec<_>) = findings.into_iter().partition(|f| f.fails);
    let words = |all: Vec<Finding>| all.into_iter().map(|f| f.finding).collect();
    (words(failing), words(notes))
}
