-- redrive_event_outbox: publish an event again, under the same event id, in its place in its key.
--
-- Moves    FAILED -> waiting | SENT -> waiting (only with p_resend_sent); the key it blocked goes on with it
-- Caller   symphony_operator, symphony_approver
-- Locks    the bucket's cursor
-- Refuses  P7005 no actor or reason, or a bad window, P7006 PENDING, or SENT without p_resend_sent, P7007 no such event
-- Why      a bus that deduplicates swallows a repeated id in silence for p_dedup_window_seconds after the last
--          publish: the redrive waits until that is over, and `due_at` says when. Until it is published the
--          key's later events wait behind it.
CREATE OR REPLACE FUNCTION symphony.redrive_event_outbox(
    p_event_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false,
    p_resend_sent BOOLEAN DEFAULT false, p_dedup_window_seconds INT DEFAULT 300
) RETURNS TABLE (event_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN, due_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_event   symphony.event_outbox_log := symphony.lock_event_for_act(p_event_id, p_actor, p_reason, p_approver, p_dry_run);
    v_redrive INT;
    v_is_head BOOLEAN;
BEGIN
    IF p_dedup_window_seconds IS NULL OR p_dedup_window_seconds NOT BETWEEN 0 AND 604800 THEN
        RAISE EXCEPTION 'p_dedup_window_seconds must be between 0 and 604800' USING ERRCODE = 'P7005';
    END IF;
    state_before := symphony.event_state(p_event_id);
    IF state_before = 'PENDING' THEN
        RAISE EXCEPTION 'event % is PENDING: it will be published without a redrive', p_event_id USING ERRCODE = 'P7006';
    ELSIF state_before = 'SENT' AND p_resend_sent IS NOT TRUE THEN
        RAISE EXCEPTION 'event % is SENT: to publish it again say so (p_resend_sent)', p_event_id USING ERRCODE = 'P7006';
    END IF;
    SELECT max(a.redrive_no) + 1,
           GREATEST(clock_timestamp(), max(a.completed_at) + make_interval(secs => p_dedup_window_seconds))
      INTO v_redrive, due_at
      FROM symphony.event_outbox_attempts a WHERE a.bucket = v_event.bucket AND a.position = v_event.position;
    event_id := p_event_id;
    state_after := 'PENDING';
    dry_run := p_dry_run IS NOT FALSE;
    IF NOT dry_run THEN
        INSERT INTO symphony.event_outbox_waiting (bucket, event_key, position, redrive_no, not_before)
        VALUES (v_event.bucket, v_event.event_key, v_event.position, v_redrive, due_at);
        SELECT w.position = v_event.position INTO v_is_head FROM symphony.event_outbox_waiting w
         WHERE w.bucket = v_event.bucket AND w.event_key = v_event.event_key ORDER BY w.position LIMIT 1;
        -- A key blocked by another failed event stays blocked: this one takes its place in the line.
        INSERT INTO symphony.event_outbox_blocked AS k (bucket, event_key, due_at)
        VALUES (v_event.bucket, v_event.event_key, due_at)
        ON CONFLICT (bucket, event_key) DO UPDATE
           SET due_at = CASE WHEN v_is_head OR k.failed_position IS NOT NULL THEN excluded.due_at ELSE k.due_at END,
               failed_position = NULL, destination = NULL, hasten_from = NULL,
               paused_topic = CASE WHEN NOT v_is_head THEN k.paused_topic END
         WHERE k.failed_position IS NULL OR k.failed_position = v_event.position;
        PERFORM symphony.record_outbox_act('events', 'REDRIVEN', p_event_id, p_actor, p_approver, p_reason,
            jsonb_build_object('redrive_no', v_redrive, 'state_before', state_before, 'due_at', due_at));
    END IF;
    RETURN NEXT;
END $$;
