-- expire_trigger_reply: whoever waited for an item is about to be told that nothing came of it; make that true, or say what did.
--
-- Moves    nothing: from here on no completion of the item applies anything, and none leases it
-- Caller   symphony_executor: what serves HTTP
-- Locks    the pending row: a completion that is being committed is waited for
-- Refuses  P7005 invalid argument, 55P03 if a completion takes longer than p_wait_ms to commit
-- Why      an error means that nothing was applied. A deadline that is only looked at does not hold until the commit: the
--          completion has looked, and its commit may take any time. The row's lock is held until then.
CREATE OR REPLACE FUNCTION symphony.expire_trigger_reply(p_id UUID, p_wait_ms INT)
RETURNS TABLE (expired BOOLEAN, dispatched BOOLEAN, result JSONB, error_code TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_count('p_wait_ms', p_wait_ms, 60000);
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_durable_commit();
    PERFORM set_config('lock_timeout', p_wait_ms || 'ms', true);
    UPDATE symphony.trigger_outbox_pending p SET reply_deadline_at = LEAST(p.reply_deadline_at, clock_timestamp())
     WHERE p.id = p_id AND p.reply_to IS NOT NULL;
    IF FOUND THEN
        RETURN QUERY SELECT true, false, NULL::JSONB, 'REPLY_DEADLINE';
        RETURN;
    END IF;
    RETURN QUERY SELECT false, e.state = 'DISPATCHED', e.result, e.error_code FROM symphony.trigger_outbox_executions e WHERE e.id = p_id;
    IF NOT FOUND THEN
        -- A crash of the server took the request before anybody was told of it.
        RETURN QUERY SELECT true, false, NULL::JSONB, 'REQUEST_LOST';
    END IF;
END $$;
