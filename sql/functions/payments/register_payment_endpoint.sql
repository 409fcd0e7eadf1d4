-- register_payment_endpoint: what a fingerprint in the ledger stands for, in words.
--
-- Moves    nothing
-- Caller   symphony_executor, at start
-- Locks    the endpoint's row, if it is new
-- Refuses  P7005 blank or overlong text
-- Why      the ledger holds fingerprints, which are short; an auditor wants to read where money was sent.
CREATE OR REPLACE FUNCTION symphony.register_payment_endpoint(p_rail_type TEXT, p_endpoint TEXT, p_description TEXT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM symphony.require_outbox_id('p_rail_type', p_rail_type);
    PERFORM symphony.require_outbox_id('p_endpoint', p_endpoint);
    PERFORM symphony.require_outbox_id('p_description', p_description, 2000);
    INSERT INTO symphony.payment_outbox_endpoints (endpoint, rail_type, description)
    VALUES (p_endpoint, p_rail_type, p_description) ON CONFLICT DO NOTHING;
END $$;
