-- payments_by_rail_keys: the items whose rail got these keys, for whoever reads a bank's statement.
--
-- Moves    nothing
-- Caller   everybody who reads items
-- Locks    nothing
-- Refuses  P7005 no keys, or more than 10,000
-- Why      as payment_by_rail_key, but one pass over the instructions for all of them: a statement has thousands.
CREATE OR REPLACE FUNCTION symphony.payments_by_rail_keys(p_rail_keys UUID[]) RETURNS TABLE (rail_key UUID, outbox_id UUID)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    PERFORM symphony.require_outbox_count('p_rail_keys', coalesce(cardinality(p_rail_keys), 0), 10000);
    RETURN QUERY
    SELECT k.rail_key, i.outbox_id
      FROM (SELECT DISTINCT t.k AS rail_key FROM unnest(p_rail_keys) t(k)) k
      JOIN (SELECT x.outbox_id, symphony.derive_key(s.installation_id, x.instruction_id, x.idempotency_key, x.redrive_no) AS derived
              FROM symphony.payment_outbox_instructions x CROSS JOIN symphony.symphony_installation s) i ON i.derived = k.rail_key;
END $$;
