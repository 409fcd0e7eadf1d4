-- read_kv_entry: one entry of an app; no row if there is none.
--
-- Moves    nothing
-- Caller   symphony_operator, symphony_approver, symphony_auditor
-- Locks    nothing
-- Refuses  P7007 no such app
-- Why      as list_kv_entries.
CREATE OR REPLACE FUNCTION symphony.read_kv_entry(p_app TEXT, p_key TEXT)
RETURNS TABLE (key TEXT, value JSONB, version TEXT, expires_at TIMESTAMPTZ, updated_at TIMESTAMPTZ)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id UUID := symphony.find_app(p_app);
BEGIN
    RETURN QUERY
        SELECT e.key, e.value, e.entry_no || '.' || e.version, e.expires_at, e.updated_at FROM symphony.kv_entries e
         WHERE e.app_id = v_app_id AND e.key = p_key AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp());
END $$;
