-- What is installed here: one row, written by `symphony migrate`, compared by `migrate --check` and `doctor`.
CREATE TABLE IF NOT EXISTS public.symphony_schema (
    only_row       BOOLEAN CONSTRAINT symphony_schema_has_one_row PRIMARY KEY DEFAULT true
        CONSTRAINT symphony_schema_row_is_true CHECK (only_row),
    schema_version INT NOT NULL,
    tables_hash    TEXT NOT NULL,
    code_hash      TEXT NOT NULL,
    -- A digest of the live catalog right after the migration: what differs later was changed by hand.
    fingerprint    TEXT NOT NULL,
    applied_at     TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
