-- fire_cron_tick: a cron trigger is due; fire it and set its clock, once across all processes.
--
-- Moves    the clock; nothing -> pending, unless p_fire is false
-- Caller   symphony_executor
-- Locks    the app against deletion and pushes, then the clock
-- Refuses  P7005 for a next tick that is not after this one
-- Why      exactly once: whoever finds the clock where the tick says moves it on, in the same transaction; everybody else
--          finds it moved and is answered false. The database's clock says whether the time has come. A clock that
--          was never set has no tick yet: p_tick_at is NULL and nothing is fired.
CREATE OR REPLACE FUNCTION symphony.fire_cron_tick(p_trigger_id UUID, p_tick_at TIMESTAMPTZ, p_next_tick_at TIMESTAMPTZ, p_fire BOOLEAN DEFAULT true)
RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_trigger symphony.triggers;
BEGIN
    IF p_next_tick_at <= p_tick_at THEN
        RAISE EXCEPTION 'p_next_tick_at must be after p_tick_at' USING ERRCODE = 'P7005';
    ELSIF p_tick_at > clock_timestamp() THEN
        RETURN false;
    END IF;
    PERFORM FROM symphony.apps a WHERE a.id = (SELECT t.app_id FROM symphony.triggers t WHERE t.id = p_trigger_id) FOR KEY SHARE;
    UPDATE symphony.trigger_cron c
       SET next_tick_at = p_next_tick_at, last_tick_at = coalesce(CASE WHEN p_fire THEN p_tick_at END, c.last_tick_at)
     WHERE c.trigger_id = p_trigger_id AND c.next_tick_at IS NOT DISTINCT FROM p_tick_at;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_fire AND p_tick_at IS NOT NULL THEN
        SELECT t.* INTO STRICT v_trigger FROM symphony.triggers t WHERE t.id = p_trigger_id;
        PERFORM symphony.place_trigger(
            v_trigger.app_id, 'cron', v_trigger.id, v_trigger.script_name,
            jsonb_build_object('tickAt', to_char(p_tick_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'timeZone', v_trigger.time_zone,
                               'trigger', v_trigger.name),
            (SELECT symphony.note_principal('app', a.name) FROM symphony.apps a WHERE a.id = v_trigger.app_id),
            v_trigger.registered_by_principal, 0, NULL, NULL, false, v_trigger.attempts_max, v_trigger.backoff_seconds);
    END IF;
    RETURN true;
END $$;
