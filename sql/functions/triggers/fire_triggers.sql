-- fire_triggers: something happened in an app; write an item for every trigger that is for it.
--
-- Moves    nothing -> pending, for each matching trigger
-- Caller   write_kv, send_message, end_triggers; nobody else may
-- Locks    nothing
-- Refuses  P7005 if that is more than p_rows_left or p_bytes_left
-- Why      in the writer's own transaction: what rolls back has fired nothing. Answers what is left of the bounds, if any.
CREATE OR REPLACE FUNCTION symphony.fire_triggers(
    p_app_id UUID, p_source_kind TEXT, p_subject TEXT, p_payload JSONB, p_origin_principal UUID, p_depth INT, p_parent UUID, p_root UUID,
    p_after_dead_letter BOOLEAN, INOUT p_rows_left INT DEFAULT NULL, INOUT p_bytes_left BIGINT DEFAULT NULL, OUT fired INT
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_trigger symphony.triggers;
    v_bytes   INT := pg_column_size(p_payload);
BEGIN
    fired := 0;
    FOR v_trigger IN SELECT t.* FROM symphony.triggers t
                      WHERE t.app_id = p_app_id AND t.source_kind = p_source_kind
                        AND symphony.trigger_matches(t.filter, p_subject)
                      ORDER BY t.id
    LOOP
        IF p_rows_left IS NOT NULL THEN
            p_rows_left := p_rows_left - 1;
            p_bytes_left := p_bytes_left - v_bytes;
            PERFORM symphony.require_fan_out(p_rows_left, p_bytes_left);
        END IF;
        PERFORM symphony.place_trigger(
            p_app_id, p_source_kind, v_trigger.id, v_trigger.script_name, p_payload, p_origin_principal, v_trigger.registered_by_principal,
            p_depth, p_parent, p_root, p_after_dead_letter, v_trigger.attempts_max, v_trigger.backoff_seconds);
        fired := fired + 1;
    END LOOP;
END $$;
