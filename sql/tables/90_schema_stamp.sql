-- What is installed here: one row, written by `symphony migrate`, read by every command before it does
-- anything. It says which version was installed; whether the schema still is that, only the catalog itself can say.
CREATE TABLE IF NOT EXISTS symphony.symphony_schema (
    only_row       BOOLEAN CONSTRAINT symphony_schema_has_one_row PRIMARY KEY DEFAULT true
        CONSTRAINT symphony_schema_row_is_true CHECK (only_row),
    schema_version INT NOT NULL,
    tables_hash    TEXT NOT NULL,
    code_hash      TEXT NOT NULL,
    applied_at     TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);
