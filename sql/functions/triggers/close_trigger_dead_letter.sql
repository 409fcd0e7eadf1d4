-- close_trigger_dead_letter: a person says that a FAILED execution needs nothing more.
--
-- Moves    nothing; the dead letter is not listed any more
-- Caller   symphony_operator, symphony_approver
-- Locks    the execution
-- Refuses  P7005 no actor or reason, P7006 not FAILED, replayed or closed already, P7007 no such execution, P7008 approval
-- Why      as close_payment_dead_letter.
CREATE OR REPLACE FUNCTION symphony.close_trigger_dead_letter(
    p_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (item_id UUID, state TEXT, error_code TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_letter RECORD;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    PERFORM FROM symphony.trigger_outbox_attempts a WHERE a.id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_id: there is no execution % with an outcome', coalesce(p_id::TEXT, 'null') USING ERRCODE = 'P7007';
    END IF;
    SELECT d.* INTO v_letter FROM symphony.trigger_outbox_dead_letters d WHERE d.id = p_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'execution % is no open dead letter: it did not fail, or was replayed or closed already', p_id USING ERRCODE = 'P7006';
    END IF;
    IF p_dry_run IS FALSE THEN
        PERFORM symphony.record_outbox_act('triggers', 'DEAD_LETTER_CLOSED', p_id, p_actor, p_approver, p_reason,
                                           p_app_id => v_letter.app_id);
    END IF;
    RETURN QUERY SELECT p_id, 'FAILED', v_letter.error_code, p_dry_run IS NOT FALSE;
END $$;
