-- require_approval_change: what needs approval is changed by two people, in either direction.
--
-- Moves    nothing
-- Caller   configure_payment_lane, configure_event_lane, configure_trigger_lane
-- Locks    nothing: the caller holds the lane's settings
-- Refuses  P7008 one person alone
-- Why      whoever could switch it off alone would not be bound by it. Switching it on needs a second person too: that proves,
--          before anything depends on it, that there is one who can approve.
CREATE OR REPLACE FUNCTION symphony.require_approval_change(p_present BOOLEAN, p_wanted BOOLEAN) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_wanted <> p_present AND symphony.approved_outbox_act() IS NULL THEN
        RAISE EXCEPTION 'p_approval_required is changed by two people: a second person must approve it'
            USING ERRCODE = 'P7008', HINT = 'Ask for it: request_outbox_approval.';
    END IF;
END $$;
