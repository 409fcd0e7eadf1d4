-- set_kv_entry: a person writes an entry of an app, which fires what watches it.
--
-- Moves    the entry; nothing -> pending, for each matching trigger
-- Caller   symphony_operator, symphony_approver
-- Locks    the app against deletion, the entry
-- Refuses  P7005 a bad key, value or time to live, no actor or reason, P7007 no such app, P7008 approval
-- Why      what services write is kv_set's; what a person writes has a name and a reason. The value is a payload: the
--          narrative has the key alone.
CREATE OR REPLACE FUNCTION symphony.set_kv_entry(
    p_app TEXT, p_key TEXT, p_value JSONB, p_actor TEXT, p_reason TEXT, p_ttl_seconds INT DEFAULT NULL, p_approver TEXT DEFAULT NULL,
    p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (key TEXT, existed BOOLEAN, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id UUID;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    PERFORM symphony.require_outbox_id('p_key', p_key, 512);
    IF p_value IS NULL THEN
        RAISE EXCEPTION 'p_value is missing: delete_kv_entry deletes' USING ERRCODE = 'P7005';
    ELSIF p_ttl_seconds NOT BETWEEN 1 AND 999999999 THEN
        RAISE EXCEPTION 'p_ttl_seconds must be a whole number from 1 to 999999999' USING ERRCODE = 'P7005';
    END IF;
    PERFORM symphony.require_plain_json('p_value', p_value, 256);
    v_app_id := symphony.require_app(p_app);
    key := p_key;
    dry_run := p_dry_run IS NOT FALSE;
    existed := EXISTS (SELECT FROM symphony.kv_entries e WHERE e.app_id = v_app_id AND e.key = p_key
                          AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp()));
    IF p_dry_run IS FALSE THEN
        PERFORM symphony.write_kv(
            v_app_id, p_key,
            ARRAY[jsonb_build_object('kind', 'kv_set', 'value', p_value)
                  || CASE WHEN p_ttl_seconds IS NULL THEN '{}' ELSE jsonb_build_object('ttlSeconds', p_ttl_seconds) END],
            symphony.acting_principal(), 0, NULL, NULL, false);
        PERFORM symphony.record_outbox_act('triggers', 'ENTRY_SET', NULL, p_actor, p_approver, p_reason,
            jsonb_build_object('app', p_app, 'key', p_key), v_app_id);
    END IF;
    RETURN NEXT;
END $$;
