-- enqueue_trigger_outbox: fire one route or trigger of an app, inside the caller's own transaction.
--
-- Moves    nothing -> pending (due at once)
-- Caller   symphony_ingest; what serves HTTP and email
-- Locks    the app against deletion
-- Refuses  P7005 invalid argument, P7007 no such app, route or trigger
-- Why      the batch form for one, raising where that one answers: the two cannot disagree. With p_reply_to somebody
--          waits: the item is tried once, and not at all once p_wait_ms is over.
CREATE OR REPLACE FUNCTION symphony.enqueue_trigger_outbox(
    p_app TEXT, p_source_kind TEXT, p_trigger_id UUID, p_payload JSONB, p_origin_principal UUID DEFAULT NULL, p_reply_to UUID DEFAULT NULL,
    p_wait_ms INT DEFAULT NULL, p_traceparent TEXT DEFAULT NULL
) RETURNS TABLE (id UUID, app_id UUID, reply_deadline_at TIMESTAMPTZ, state TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_error_code    TEXT;
    v_error_message TEXT;
BEGIN
    SELECT e.id, e.app_id, e.reply_deadline_at, e.state, e.error_code, e.error_message
      INTO id, app_id, reply_deadline_at, state, v_error_code, v_error_message
      FROM symphony.enqueue_trigger_outbox_batch(
               ARRAY[p_app], ARRAY[p_source_kind], ARRAY[p_trigger_id], ARRAY[p_payload], ARRAY[p_origin_principal], ARRAY[p_reply_to],
               ARRAY[p_wait_ms], ARRAY[p_traceparent]) e;
    IF v_error_code IS NOT NULL THEN
        RAISE EXCEPTION '%', v_error_message USING ERRCODE = v_error_code;
    END IF;
    RETURN NEXT;
END $$;
