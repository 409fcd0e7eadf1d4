-- require_payment_rail: refuse the name of a rail that nobody has configured, serves or has used.
--
-- Moves    nothing
-- Caller   pause_payment_rail, resume_payment_rail
-- Locks    nothing
-- Refuses  P7005 no name, P7007 no such rail
-- Why      a mistyped name would be paused in earnest, and the rail that was meant would go on paying.
CREATE OR REPLACE FUNCTION symphony.require_payment_rail(p_rail_type TEXT) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    PERFORM symphony.require_outbox_id('p_rail_type', p_rail_type);
    IF NOT EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type)
       AND NOT EXISTS (SELECT FROM symphony.payment_outbox_endpoints e WHERE e.rail_type = p_rail_type)
       AND NOT EXISTS (SELECT FROM symphony.payment_outbox_pending p WHERE p.hold IS NULL AND p.rail_type = p_rail_type)
       AND NOT EXISTS (SELECT FROM symphony.outbox_destinations d WHERE d.lane = 'payments' AND d.name = p_rail_type) THEN
        RAISE EXCEPTION 'p_rail_type names no rail that is configured, served or used: %', p_rail_type USING ERRCODE = 'P7007';
    END IF;
END $$;
