-- require_outbox_approval: refuse an act that a second person must have approved.
--
-- Moves    nothing
-- Caller   require_outbox_act, push_app
-- Locks    nothing
-- Refuses  P7008 the lane wants approval, and this transaction carries out no approved act
-- Why      one question for every act of every lane, so that no act is a way around another.
CREATE OR REPLACE FUNCTION symphony.require_outbox_approval(p_lane TEXT) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_required BOOLEAN := CASE p_lane WHEN 'payments' THEN (SELECT s.approval_required FROM symphony.payment_outbox_settings s)
                                      WHEN 'events' THEN (SELECT s.approval_required FROM symphony.event_outbox_settings s)
                                      WHEN 'triggers' THEN (SELECT s.approval_required FROM symphony.trigger_outbox_settings s) END;
BEGIN
    IF v_required AND symphony.approved_outbox_act() IS NULL THEN
        RAISE EXCEPTION 'this act needs a second person''s approval in the % lane', rtrim(p_lane, 's')
            USING ERRCODE = 'P7008', HINT = 'Ask for it: request_outbox_approval. Parking and pausing need none.';
    END IF;
END $$;
