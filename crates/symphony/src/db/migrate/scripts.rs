//! The SQL around the embedded files, and the whole as a script for `psql`.

use crate::db::catalog;
use crate::schema::{self, SCHEMA_VERSION, Section};

/// Makes migrations of one database wait for each other. Only the owner may lock the stamp like this, and reading it
/// does not conflict; a first installation is serialised by the schema it creates.
pub(super) const LOCK_STAMP: &str = r"
DO $$ BEGIN
    IF pg_catalog.to_regclass('public.symphony_schema') IS NOT NULL THEN
        LOCK TABLE public.symphony_schema IN SHARE ROW EXCLUSIVE MODE;
    END IF;
END $$;
";

/// The owner role for the length of this transaction. A superuser needs no membership, and gets none.
pub(super) const BECOME_OWNER: &str = r"
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
-- Not public: somebody else's function or operator there must not become a part of ours.
SET LOCAL search_path = pg_catalog, symphony_internal;
";

/// The owner's view for a look that is rolled back.
pub(super) const LOOK_AS_OWNER: &str = r"
DO $$ BEGIN
    IF NOT pg_catalog.pg_has_role('symphony_control', 'USAGE') THEN
        EXECUTE pg_catalog.format('GRANT symphony_control TO %I', current_user);
    END IF;
END $$;
SET LOCAL ROLE symphony_control;
";

/// Back to the login, and nothing of the owner's rights stays with it.
pub(super) const LEAVE_OWNER: &str = r"
SET LOCAL ROLE NONE;
REVOKE CREATE ON SCHEMA public FROM symphony_control;
DO $$ BEGIN
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        EXECUTE pg_catalog.format('REVOKE symphony_control FROM %I', current_user);
    END IF;
END $$;
";

/// RESTRICT: what somebody else has built on ours stops it and is named.
pub(super) const DROP_EVERYTHING: &str =
    "DROP OWNED BY symphony_control RESTRICT; SET LOCAL ROLE NONE;";

const STAMP: &str = r"
INSERT INTO public.symphony_schema (schema_version, tables_hash, code_hash)
VALUES (@VERSION@, '@TABLES@', '@CODE@')
ON CONFLICT (only_row) DO UPDATE
   SET schema_version = excluded.schema_version, tables_hash = excluded.tables_hash, code_hash = excluded.code_hash,
       applied_at = clock_timestamp()
 WHERE (symphony_schema.schema_version, symphony_schema.tables_hash, symphony_schema.code_hash)
       IS DISTINCT FROM (excluded.schema_version, excluded.tables_hash, excluded.code_hash);
";

pub(super) fn stamp() -> String {
    filled(STAMP)
}

/// The tables of a first installation: a name that is taken by then stops it, and is never adopted.
pub(super) fn tables_anew() -> String {
    schema::script(Section::Tables)
        .replace("CREATE TABLE IF NOT EXISTS", "CREATE TABLE")
        .replace("CREATE SEQUENCE IF NOT EXISTS", "CREATE SEQUENCE")
}

fn filled(script: &str) -> String {
    script
        .replace("@VERSION@", &SCHEMA_VERSION.to_string())
        .replace("@TABLES@", &schema::tables_hash())
        .replace("@CODE@", &schema::code_hash())
}

/// The printed script's own refusals; the command checks the same in Rust, with better words.
const REFUSE_OTHERS: &str = r"
DO $$
DECLARE
    v_version INT;
    v_foreign TEXT;
BEGIN
    IF pg_catalog.to_regclass('public.payment_outbox') IS NOT NULL OR pg_catalog.to_regtype('public.outbox_status') IS NOT NULL THEN
        RAISE EXCEPTION 'an older installation is here: symphony migrate --replace-legacy drops it';
    END IF;
    SELECT pg_catalog.string_agg(said, '; ') INTO v_foreign FROM (@FOREIGN@) f(said);
    IF v_foreign IS NOT NULL THEN
        RAISE EXCEPTION 'other objects bear our names: %', v_foreign;
    END IF;
    IF pg_catalog.to_regclass('public.symphony_schema') IS NULL THEN
        RETURN;
    END IF;
    SELECT schema_version INTO v_version FROM public.symphony_schema;
    IF v_version > @VERSION@ THEN
        RAISE EXCEPTION 'this database has schema version %, newer than this script''s @VERSION@', v_version;
    END IF;
END $$;
";

/// The printed script stamps only what is exactly as declared.
const REFUSE_DIFFERENCES: &str = r"
DO $check$
DECLARE
    v_differs TEXT;
BEGIN
    SET LOCAL search_path = pg_catalog;
    SELECT pg_catalog.string_agg(said, '; ') INTO v_differs FROM (@DIFFERENCES@) d(said);
    IF v_differs IS NOT NULL THEN
        RAISE EXCEPTION 'the schema is not as declared: %', v_differs;
    END IF;
    SET LOCAL search_path = pg_catalog, symphony_internal;
END $check$;
";

/// The whole migration as a script for `psql`, for teams that apply it with their own tool. Idempotent.
pub fn print() -> String {
    let mut script = String::from(
        "-- Symphony's schema, as `symphony migrate` applies it to a new database. Run with: psql -v ON_ERROR_STOP=1 -f\n\
         BEGIN;\n",
    );
    for part in [
        filled(REFUSE_OTHERS).replace("@FOREIGN@", &catalog::foreign_objects_literal()),
        schema::script(Section::Roles),
        BECOME_OWNER.to_owned(),
        LOCK_STAMP.to_owned(),
        schema::script(Section::Tables),
        schema::script(Section::Functions),
        schema::script(Section::Triggers),
        schema::script(Section::Views),
        schema::script(Section::Privileges),
        REFUSE_DIFFERENCES.replace("@DIFFERENCES@", &catalog::differences_literal()),
        stamp(),
        LEAVE_OWNER.to_owned(),
    ] {
        script.push_str(&part);
        script.push('\n');
    }
    script.push_str("COMMIT;\n");
    script
}
