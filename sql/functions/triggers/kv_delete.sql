-- kv_delete: remove an entry of an app, inside the caller's own transaction, and fire what watches it.
--
-- Moves    the entry; nothing -> pending, for each matching trigger
-- Caller   symphony_ingest
-- Locks    the entry, until the caller's transaction ends
-- Refuses  P7005 a bad key, P7007 no such app
-- Why      answers whether there was one: deleting nothing fires nothing.
CREATE OR REPLACE FUNCTION symphony.kv_delete(p_app TEXT, p_key TEXT, p_principal UUID DEFAULT NULL) RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (symphony.write_kv(
        symphony.require_app(p_app), p_key, ARRAY['{"kind": "kv_delete"}'::JSONB], coalesce(p_principal, symphony.acting_principal()), 0, NULL, NULL, false)).entry_version > 0;
END $$;
