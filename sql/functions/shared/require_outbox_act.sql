-- require_outbox_act: an act has a person and a reason, and its approver is somebody else.
--
-- Moves    nothing
-- Caller   every act of every lane
-- Locks    nothing
-- Refuses  P7005 no actor, no reason, or a transaction above READ COMMITTED, P7008 approved by the actor
-- Why      an act without a name and a reason is what an auditor finds a year later and nobody can explain.
CREATE OR REPLACE FUNCTION symphony_internal.require_outbox_act(p_actor TEXT, p_reason TEXT, p_approver TEXT) RETURNS VOID
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM symphony_internal.require_read_committed();
    PERFORM symphony_internal.require_outbox_id('p_actor', p_actor);
    PERFORM symphony_internal.require_outbox_id('p_reason', p_reason, 2000);
    IF p_approver IS NOT NULL THEN
        PERFORM symphony_internal.require_outbox_id('p_approver', p_approver);
        IF lower(btrim(p_approver)) = lower(btrim(p_actor)) THEN
            RAISE EXCEPTION 'p_approver is the actor: a second person must approve' USING ERRCODE = 'P7008';
        END IF;
    END IF;
END $$;
