-- refuse_ledger_change: the ledger only grows.
--
-- Moves    nothing
-- Caller   triggers on every append-only table
-- Locks    nothing
-- Refuses  P0001 always
-- Why      privileges stop every runtime role; this stops the owner and a superuser's slip as well.
CREATE OR REPLACE FUNCTION symphony.refuse_ledger_change() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '% on %: this table is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'P0001', HINT = 'Record a correction as a new row; nothing here is ever rewritten.';
END $$;
