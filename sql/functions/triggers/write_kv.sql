-- write_kv: set an entry, or delete it with a NULL value, and fire what watches it.
--
-- Moves    the entry; nothing -> pending, for each matching trigger
-- Caller   kv_set, kv_delete, apply_trigger_effects; nobody else may
-- Locks    the entry, until the caller's transaction ends
-- Refuses  P7005 for a bad key or a value that is too large
-- Why      the entry and what it fires commit together. Deleting what is not there changes nothing and fires nothing.
CREATE OR REPLACE FUNCTION symphony_internal.write_kv(
    p_app_id UUID, p_key TEXT, p_value JSONB, p_origin_principal UUID, p_depth INT, p_parent UUID, p_root UUID, p_after_dead_letter BOOLEAN
) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_previous JSONB;
    v_version  BIGINT;
BEGIN
    PERFORM symphony_internal.require_outbox_id('p_key', p_key, 512);
    PERFORM symphony_internal.require_plain_json('p_value', p_value, 256);
    -- Two may write a new key at once: the second looks again, and finds what the first wrote.
    LOOP
        SELECT e.value, e.version INTO v_previous, v_version FROM public.kv_entries e WHERE e.app_id = p_app_id AND e.key = p_key FOR UPDATE;
        IF FOUND AND p_value IS NULL THEN
            DELETE FROM public.kv_entries e WHERE e.app_id = p_app_id AND e.key = p_key;
            EXIT;
        ELSIF FOUND THEN
            UPDATE public.kv_entries e SET value = p_value, version = e.version + 1, updated_at = clock_timestamp()
             WHERE e.app_id = p_app_id AND e.key = p_key RETURNING e.version INTO v_version;
            EXIT;
        ELSIF p_value IS NULL THEN
            RETURN 0;
        END IF;
        INSERT INTO public.kv_entries AS e (app_id, key, value) VALUES (p_app_id, p_key, p_value)
        ON CONFLICT (app_id, key) DO NOTHING RETURNING e.version INTO v_version;
        EXIT WHEN FOUND;
    END LOOP;
    PERFORM symphony_internal.fire_triggers(
        p_app_id, 'kv', p_key,
        jsonb_build_object('operation', CASE WHEN p_value IS NULL THEN 'delete' ELSE 'set' END, 'key', p_key, 'value', p_value,
                           'previous', v_previous, 'version', v_version),
        p_origin_principal, p_depth, p_parent, p_root, p_after_dead_letter);
    RETURN v_version;
END $$;
