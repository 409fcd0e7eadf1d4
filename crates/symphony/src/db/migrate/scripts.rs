//! The SQL around the embedded files, and the whole as a script for `psql`.

use crate::db::{Schema, catalog};
use crate::schema::{self, SCHEMA_VERSION, Section};

/// Makes migrations of one database wait for each other. Only the owner may lock the stamp like this, and reading it
/// does not conflict; a first installation is serialised by the schema it creates.
pub(super) const LOCK_STAMP: &str = r"
DO $$ BEGIN
    IF pg_catalog.to_regclass('symphony.symphony_schema') IS NOT NULL THEN
        LOCK TABLE symphony.symphony_schema IN SHARE ROW EXCLUSIVE MODE;
    END IF;
END $$;
";

/// The owner role for the length of this transaction. A superuser needs no membership, and gets none.
pub(super) const BECOME_OWNER: &str = r#"
SET LOCAL client_min_messages = warning;
DO $$ BEGIN
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        EXECUTE pg_catalog.format('GRANT symphony_control TO %I', current_user);
    END IF;
END $$;
CREATE SCHEMA IF NOT EXISTS "symphony" AUTHORIZATION symphony_control;
DO $$ BEGIN
    -- Of a schema that belongs to somebody else, for the length of this transaction.
    IF (SELECT nspowner FROM pg_catalog.pg_namespace WHERE oid = 'symphony'::pg_catalog.regnamespace)
       <> 'symphony_control'::pg_catalog.regrole THEN
        GRANT CREATE ON SCHEMA symphony TO symphony_control;
    END IF;
END $$;
GRANT USAGE ON SCHEMA symphony TO symphony_control, symphony_ingest, symphony_executor, symphony_operator,
    symphony_approver, symphony_readonly, symphony_auditor, symphony_auth, symphony_consumer;
SET LOCAL ROLE symphony_control;
-- Of other schemas nothing: somebody else's function or operator there must not become a part of ours.
SET LOCAL search_path = pg_catalog, "symphony";
"#;

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
DO $$ BEGIN
    IF (SELECT nspowner FROM pg_catalog.pg_namespace WHERE oid = 'symphony'::pg_catalog.regnamespace)
       <> 'symphony_control'::pg_catalog.regrole THEN
        REVOKE CREATE ON SCHEMA symphony FROM symphony_control;
    END IF;
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        EXECUTE pg_catalog.format('REVOKE symphony_control FROM %I', current_user);
    END IF;
END $$;
";

/// Everything of this installation, and of no other. RESTRICT: what somebody else has built on ours stops it and is named.
/// Triggers and defaults first: tables need functions for them, and functions need tables for their types.
pub(super) const DROP_EVERYTHING: &str = r"
DO $$
DECLARE
    v_owner  OID := 'symphony_control'::pg_catalog.regrole;
    v_schema OID := 'symphony'::pg_catalog.regnamespace;
    v_drop   TEXT;
BEGIN
    FOR v_drop IN
        SELECT pg_catalog.format('DROP TRIGGER %I ON %s', t.tgname, c.oid::pg_catalog.regclass)
          FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = v_schema AND c.relowner = v_owner AND NOT t.tgisinternal
        UNION ALL
        SELECT pg_catalog.format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', c.oid::pg_catalog.regclass, a.attname)
          FROM pg_catalog.pg_attrdef d JOIN pg_catalog.pg_class c ON c.oid = d.adrelid
          JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.adnum
         WHERE c.relnamespace = v_schema AND c.relowner = v_owner AND c.relkind = 'r' AND a.attgenerated = ''
    LOOP
        EXECUTE v_drop;
    END LOOP;
    FOR v_drop IN
        SELECT o.word || pg_catalog.string_agg(o.name, ', ') || ' RESTRICT' FROM (
            SELECT 1 AS no, 'DROP VIEW ' AS word, c.oid::pg_catalog.regclass::TEXT AS name
              FROM pg_catalog.pg_class c WHERE c.relnamespace = v_schema AND c.relowner = v_owner AND c.relkind = 'v'
            UNION ALL
            SELECT 2, 'DROP FUNCTION ', p.oid::pg_catalog.regprocedure::TEXT
              FROM pg_catalog.pg_proc p WHERE p.pronamespace = v_schema AND p.proowner = v_owner
            UNION ALL
            SELECT 3, 'DROP TABLE ', c.oid::pg_catalog.regclass::TEXT
              FROM pg_catalog.pg_class c WHERE c.relnamespace = v_schema AND c.relowner = v_owner AND c.relkind IN ('r', 'p')
            UNION ALL
            SELECT 4, 'DROP SEQUENCE ', c.oid::pg_catalog.regclass::TEXT
              FROM pg_catalog.pg_class c WHERE c.relnamespace = v_schema AND c.relowner = v_owner AND c.relkind = 'S'
               AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid = c.oid AND d.deptype IN ('a', 'i'))
            UNION ALL
            SELECT 5, 'DROP TYPE ', t.oid::pg_catalog.regtype::TEXT
              FROM pg_catalog.pg_type t WHERE t.typnamespace = v_schema AND t.typowner = v_owner AND t.typtype IN ('e', 'd')
        ) o GROUP BY o.no, o.word ORDER BY o.no
    LOOP
        EXECUTE v_drop;
    END LOOP;
END $$;
SET LOCAL ROLE NONE;
";

const STAMP: &str = r"
INSERT INTO symphony.symphony_schema (schema_version, tables_hash, code_hash) -- symphony-guard: allow, the stamp itself
VALUES (@VERSION@, '@TABLES@', '@CODE@')
ON CONFLICT (only_row) DO UPDATE
   SET schema_version = excluded.schema_version, tables_hash = excluded.tables_hash, code_hash = excluded.code_hash,
       applied_at = clock_timestamp()
 WHERE (symphony_schema.schema_version, symphony_schema.tables_hash, symphony_schema.code_hash)
       IS DISTINCT FROM (excluded.schema_version, excluded.tables_hash, excluded.code_hash);
";

pub(super) fn stamp(schema: &Schema) -> String {
    schema.text(&filled(STAMP)).into_owned()
}

/// A section as one script, for this schema.
pub(super) fn section(section: Section, schema: &Schema) -> String {
    schema.text(&schema::script(section)).into_owned()
}

/// The tables of a first installation: a name that is taken by then stops it, and is never adopted.
pub(super) fn tables_anew(schema: &Schema) -> String {
    section(Section::Tables, schema)
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
    v_foreign TEXT;
BEGIN
    IF pg_catalog.to_regclass('public.payment_outbox') IS NOT NULL OR pg_catalog.to_regtype('public.outbox_status') IS NOT NULL THEN
        RAISE EXCEPTION 'an older installation is here: `@REPLACE@` drops it';
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_namespace
                WHERE nspname = 'symphony_internal' AND nspowner = pg_catalog.to_regrole('symphony_control')) THEN
        RAISE EXCEPTION 'an installation of an earlier build is here, in the schemas public and symphony_internal';
    END IF;
    SELECT pg_catalog.string_agg(said, '; ') INTO v_foreign FROM (@FOREIGN@) f(said);
    IF v_foreign IS NOT NULL THEN
        RAISE EXCEPTION 'other objects bear our names: %', v_foreign;
    END IF;
END $$;
";

/// As the owner, who may read the stamp.
const REFUSE_NEWER: &str = r"
DO $$
DECLARE
    v_version INT;
BEGIN
    IF pg_catalog.to_regclass('symphony.symphony_schema') IS NULL THEN
        RETURN;
    END IF;
    SELECT schema_version INTO v_version FROM symphony.symphony_schema;
    IF v_version > @VERSION@ THEN
        RAISE EXCEPTION 'this database has schema version %, newer than this script''s @VERSION@', v_version;
    END IF;
END $$;
";

/// The printed script stamps only what is exactly as declared.
const REFUSE_DIFFERENCES: &str = r#"
DO $check$
DECLARE
    v_differs TEXT;
BEGIN
    SET LOCAL search_path = pg_catalog;
    SELECT pg_catalog.string_agg(said, '; ') INTO v_differs FROM (@DIFFERENCES@) d(said);
    IF v_differs IS NOT NULL THEN
        RAISE EXCEPTION 'the schema is not as declared: %', v_differs;
    END IF;
    SET LOCAL search_path = pg_catalog, "symphony";
END $check$;
"#;

/// The whole migration as a script for `psql`, for teams that apply it with their own tool. Idempotent.
pub fn print(schema: &Schema) -> String {
    let mut script = String::from(
        "-- Symphony's schema, as `symphony migrate` applies it to a new database. Run with: psql -v ON_ERROR_STOP=1 -f\n\
         BEGIN;\n",
    );
    for part in [
        schema
            .text(REFUSE_OTHERS)
            .replace("@REPLACE@", &schema.command("migrate --replace-legacy --yes"))
            .replace("@FOREIGN@", &catalog::foreign_objects_literal(schema)),
        schema::script(Section::Roles),
        schema.text(BECOME_OWNER).into_owned(),
        schema.text(LOCK_STAMP).into_owned(),
        schema.text(&filled(REFUSE_NEWER)).into_owned(),
        section(Section::Tables, schema),
        section(Section::Functions, schema),
        section(Section::Triggers, schema),
        section(Section::Views, schema),
        section(Section::Privileges, schema),
        schema
            .text(REFUSE_DIFFERENCES)
            .replace("@DIFFERENCES@", &catalog::differences_literal(schema)),
        stamp(schema),
        schema.text(LEAVE_OWNER).into_owned(),
    ] {
        script.push_str(&part);
        script.push('\n');
    }
    script.push_str("COMMIT;\n");
    script
}
