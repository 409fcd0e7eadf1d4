-- payment_by_rail_key: the item whose rail got this key, for whoever has only the bank's word for it.
--
-- Moves    nothing
-- Caller   everybody who reads items
-- Locks    nothing
-- Refuses  nothing: no row for a key that was never given out
-- Why      keys are derived and not stored, and an index over them would cost every enqueue: this reads all
--          instructions, about two seconds a million. By instruction or outbox id it is found at once.
CREATE OR REPLACE FUNCTION symphony.payment_by_rail_key(p_rail_key UUID) RETURNS SETOF UUID
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT i.outbox_id FROM symphony.payment_outbox_instructions i CROSS JOIN symphony.symphony_installation s
     WHERE symphony.derive_key(s.installation_id, i.instruction_id, i.idempotency_key, i.redrive_no) = p_rail_key
$$;
