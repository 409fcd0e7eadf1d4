-- list_kv_entries: entries of an app in the order of their keys, a page at a time.
--
-- Moves    nothing
-- Caller   symphony_operator, symphony_approver, symphony_auditor
-- Locks    nothing
-- Refuses  P7005 a bad limit, P7007 no such app
-- Why      values are payloads: who may not see those is refused here, and not shown keys without them. Both ends of the
--          range are given, so that nothing behind the prefix is read.
CREATE OR REPLACE FUNCTION symphony.list_kv_entries(p_app TEXT, p_prefix TEXT DEFAULT '', p_after TEXT DEFAULT NULL, p_limit INT DEFAULT 100)
RETURNS TABLE (key TEXT, value JSONB, version TEXT, expires_at TIMESTAMPTZ, updated_at TIMESTAMPTZ)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id UUID;
BEGIN
    IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'p_limit must be 1 to 1000' USING ERRCODE = 'P7005';
    END IF;
    v_app_id := symphony.find_app(p_app);
    RETURN QUERY
        SELECT e.key, e.value, e.entry_no || '.' || e.version, e.expires_at, e.updated_at FROM symphony.kv_entries e
         WHERE e.app_id = v_app_id AND e.key >= coalesce(p_prefix, '') AND e.key <= coalesce(p_prefix, '') || chr(1114111)
           AND e.key > coalesce(p_after, '') AND starts_with(e.key, coalesce(p_prefix, ''))
           AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp())
         ORDER BY e.key LIMIT p_limit;
END $$;
