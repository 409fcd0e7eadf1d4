-- require_payment_item: refuse an id that names no payment.
--
-- Moves    nothing
-- Caller   the acts and the evidence functions
-- Locks    nothing
-- Refuses  P7007 no such item
-- Why      a mistyped id must be one clear line, not an act on nothing that looks like success.
CREATE OR REPLACE FUNCTION symphony.require_payment_item(p_outbox_id UUID) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM symphony.payment_outbox_instructions i WHERE i.outbox_id = p_outbox_id) THEN
        RAISE EXCEPTION 'p_outbox_id names no payment: %', coalesce(p_outbox_id::TEXT, 'null') USING ERRCODE = 'P7007';
    END IF;
END $$;
