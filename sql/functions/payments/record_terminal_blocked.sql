-- record_terminal_blocked: the unique index refused a second terminal outcome; write that down.
--
-- Moves    nothing
-- Caller   symphony_executor, after complete_outbox_attempt raised 23505; complete_outbox_attempts itself
-- Locks    nothing
-- Refuses  P7005 blank worker, P7007 no such item
-- Why      the refused call rolled back and took its own trace with it: this is the second call that keeps it.
CREATE OR REPLACE FUNCTION symphony.record_terminal_blocked(p_outbox_id UUID, p_lease_token UUID, p_worker_id TEXT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_payment_item(p_outbox_id);
    INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, worker_id, reason, details)
    VALUES ('TERMINAL_BLOCKED', p_outbox_id, p_worker_id, 'a second terminal outcome was refused by the unique index',
            jsonb_build_object('lease_token', p_lease_token));
END $$;
