-- kv_listing: the keys of an app that begin with a prefix, as one text to compare with what a script was shown.
--
-- Moves    nothing
-- Caller   apply_trigger_effects; a worker says the same of what it reads
-- Locks    nothing
-- Refuses  nothing
-- Why      a thousand keys are long to keep and to send; their digest is not. Both ends of the range are given, so that
--          nothing behind the prefix is read.
CREATE OR REPLACE FUNCTION symphony.kv_listing(p_app_id UUID, p_prefix TEXT, p_after TEXT, p_keys_max INT) RETURNS TEXT
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT encode(sha256(convert_to(coalesce(array_agg(k.key ORDER BY k.key), '{}')::TEXT, 'UTF8')), 'hex')
      FROM (SELECT e.key FROM symphony.kv_entries e
             WHERE e.app_id = p_app_id AND e.key >= p_prefix AND e.key <= p_prefix || chr(1114111) AND e.key > coalesce(p_after, '')
               AND starts_with(e.key, p_prefix) AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp())
             ORDER BY e.key LIMIT p_keys_max) k
$$;
