-- payment_rail_key: the key a rail gets with an item, the same on every try and after every loss.
--
-- Moves    nothing
-- Caller   everybody who reads items or works them
-- Locks    nothing
-- Refuses  nothing: null for an item that does not exist
-- Why      derived from installation, instruction, idempotency key and redrive number, so that what a failover or a
--          restore has lost and a producer asks for again goes out under the key the rail may know already.
CREATE OR REPLACE FUNCTION symphony.payment_rail_key(p_outbox_id UUID) RETURNS UUID
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT symphony.derive_key(s.installation_id, i.instruction_id, i.idempotency_key, i.redrive_no)
      FROM symphony.payment_outbox_instructions i CROSS JOIN symphony.symphony_installation s WHERE i.outbox_id = p_outbox_id
$$;
