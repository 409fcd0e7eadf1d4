-- delete_kv_entry: a person removes an entry of an app, which fires what watches it.
--
-- Moves    the entry -> gone; nothing -> pending, for each matching trigger
-- Caller   symphony_operator, symphony_approver
-- Locks    the app against deletion, the entry
-- Refuses  P7005 a bad key, no actor or reason, P7007 no such app, P7008 approval
-- Why      as set_kv_entry. What is not there is not deleted: it answers so and writes nothing down.
CREATE OR REPLACE FUNCTION symphony.delete_kv_entry(
    p_app TEXT, p_key TEXT, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (key TEXT, existed BOOLEAN, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id UUID;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    PERFORM symphony.require_outbox_id('p_key', p_key, 512);
    v_app_id := symphony.require_app(p_app);
    key := p_key;
    dry_run := p_dry_run IS NOT FALSE;
    IF p_dry_run IS FALSE THEN
        existed := (symphony.write_kv(v_app_id, p_key, ARRAY['{"kind": "kv_delete"}'::JSONB], symphony.acting_principal(), 0, NULL, NULL, false)).entry_version > 0;
        IF existed THEN
            PERFORM symphony.record_outbox_act('triggers', 'ENTRY_DELETED', NULL, p_actor, p_approver, p_reason,
                jsonb_build_object('app', p_app, 'key', p_key), v_app_id);
        END IF;
    ELSE
        existed := EXISTS (SELECT FROM symphony.kv_entries e WHERE e.app_id = v_app_id AND e.key = p_key
                              AND (e.expires_at IS NULL OR e.expires_at > clock_timestamp()));
    END IF;
    RETURN NEXT;
END $$;
