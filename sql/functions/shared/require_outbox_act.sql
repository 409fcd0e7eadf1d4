-- require_outbox_act: an act has a person and a reason, and where the lane wants it a second person has approved it.
--
-- Moves    nothing
-- Caller   every act of every lane
-- Locks    nothing
-- Refuses  P7005 no actor, no reason, or a transaction above READ COMMITTED, P7008 approval missing, or an approver only named
-- Why      an act without a name and a reason is what an auditor finds a year later and nobody can explain. An approver's name
--          proves nothing, so nobody may give one: approve_outbox_request does, with the act it carries out.
CREATE OR REPLACE FUNCTION symphony.require_outbox_act(
    p_lane TEXT, p_actor TEXT, p_reason TEXT, p_approver TEXT, p_needs_approval BOOLEAN
) RETURNS VOID
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_outbox_id('p_actor', p_actor);
    PERFORM symphony.require_outbox_id('p_reason', p_reason, 2000);
    IF p_approver IS NOT NULL AND symphony.approved_outbox_act() IS NULL THEN
        RAISE EXCEPTION 'p_approver cannot be named: a second person approves from a login of their own'
            USING ERRCODE = 'P7008', HINT = 'Ask for it: request_outbox_approval.';
    END IF;
    IF p_needs_approval THEN
        PERFORM symphony.require_outbox_approval(p_lane);
    END IF;
END $$;
