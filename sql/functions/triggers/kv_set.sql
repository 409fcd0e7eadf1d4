-- kv_set: write an entry of an app, inside the caller's own transaction, and fire what watches it.
--
-- Moves    the entry; nothing -> pending, for each matching trigger
-- Caller   symphony_ingest
-- Locks    the entry, until the caller's transaction ends
-- Refuses  P7005 a bad key, value or time to live, P7007 no such app
-- Why      a service's state, the entry and what it fires commit together, or none of them.
CREATE OR REPLACE FUNCTION symphony.kv_set(
    p_app TEXT, p_key TEXT, p_value JSONB, p_principal UUID DEFAULT NULL, p_ttl_seconds INT DEFAULT NULL
) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_value IS NULL THEN
        RAISE EXCEPTION 'p_value is missing: kv_delete deletes' USING ERRCODE = 'P7005';
    END IF;
    RETURN (symphony.write_kv(
        symphony.require_app(p_app), p_key,
        ARRAY[jsonb_build_object('kind', 'kv_set', 'value', p_value)
              || CASE WHEN p_ttl_seconds IS NULL THEN '{}' ELSE jsonb_build_object('ttlSeconds', p_ttl_seconds) END],
        coalesce(p_principal, symphony.acting_principal()), 0, NULL, NULL, false)).entry_version;
END $$;
