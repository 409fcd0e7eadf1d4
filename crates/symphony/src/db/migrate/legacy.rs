//! An older installation: recognised by its shape, dropped only when asked and only if nothing in it is unfinished.

use sqlx::PgConnection;

use super::{MigrateError, Options, run};

/// What bears an older installation's names.
#[derive(sqlx::FromRow)]
struct Found {
    name: String,
    owner: String,
    legacy: bool,
    mine: bool,
}

/// The enum has only words of outcomes, the table has a column of it, and the login has the owner's rights.
const FOUND: &str = "
    WITH status AS (
        SELECT t.oid, t.typowner,
               t.typtype = 'e' AND EXISTS (SELECT FROM pg_enum e WHERE e.enumtypid = t.oid AND e.enumlabel = 'PENDING')
               AND NOT EXISTS (SELECT FROM pg_enum e WHERE e.enumtypid = t.oid AND e.enumlabel <> ALL (
                   '{PENDING,DISPATCHING,DISPATCHED,COMPLETED,SENT,RETRYABLE,FAILED,CANCELLED}')) AS legacy
          FROM pg_type t WHERE t.oid = to_regtype('public.outbox_status'))
    SELECT 'type outbox_status' AS name, s.typowner::regrole::text AS owner, s.legacy,
           pg_has_role(s.typowner, 'USAGE') AS mine FROM status s
    UNION ALL
    SELECT 'table payment_outbox', c.relowner::regrole::text,
           c.relkind = 'r' AND coalesce((SELECT s.legacy FROM status s), false) AND EXISTS (
               SELECT FROM pg_attribute a JOIN status s ON s.oid = a.atttypid
                WHERE a.attrelid = c.oid AND a.attname = 'status' AND NOT a.attisdropped),
           pg_has_role(c.relowner, 'USAGE')
      FROM pg_class c WHERE c.oid = to_regclass('public.payment_outbox') ORDER BY 1";

/// Whatever is not known to be an end counts as unfinished.
const UNFINISHED: &str = "SELECT count(*) FROM public.payment_outbox WHERE status IS NULL \
    OR status::text NOT IN ('DISPATCHED', 'COMPLETED', 'SENT', 'FAILED', 'CANCELLED')";

/// Its view is known by what it reads; anything else that stands on the table stops it.
const DROP: &str = "
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_depend d
                 JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
                WHERE r.ev_class = pg_catalog.to_regclass('public.supervisor_outbox_status')
                  AND d.refobjid = pg_catalog.to_regclass('public.payment_outbox')) THEN
        DROP VIEW public.supervisor_outbox_status RESTRICT;
    END IF;
END $$;
DROP TABLE IF EXISTS public.payment_outbox RESTRICT;
DROP TYPE IF EXISTS public.outbox_status RESTRICT;";

pub(super) async fn replace(
    connection: &mut PgConnection,
    options: &Options,
) -> Result<(), MigrateError> {
    let found: Vec<Found> = sqlx::query_as(FOUND).fetch_all(&mut *connection).await?;
    if found.is_empty() {
        return Ok(());
    }
    let named: Vec<_> = found.iter().map(|f| format!("{}, owned by {}", f.name, f.owner)).collect();
    if found.iter().any(|f| !f.legacy || !f.mine) {
        return Err(MigrateError::Foreign { objects: named });
    }
    if !options.replace_legacy {
        let schema = options.schema.clone();
        return Err(MigrateError::Legacy { schema, found: named.join("; ") });
    }
    if found.iter().any(|f| f.name.starts_with("table")) {
        // Locked first: a row must not slip in between the count and the drop.
        run(connection, "LOCK TABLE public.payment_outbox IN ACCESS EXCLUSIVE MODE").await?;
        let rows: i64 = sqlx::query_scalar(UNFINISHED).fetch_one(&mut *connection).await?;
        if rows > 0 {
            return Err(MigrateError::LegacyUnfinished { rows });
        }
    }
    run(connection, DROP).await
}
