-- payment_item_state: where an item stands, in one word.
--
-- Moves    nothing
-- Caller   enqueue functions (for known items) and the acts
-- Locks    nothing
-- Refuses  nothing; NULL for an item that does not exist
-- Why      a producer that retries wants to know what became of its first call, not only that there was one.
CREATE OR REPLACE FUNCTION symphony.payment_item_state(p_outbox_id UUID) RETURNS TEXT
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        (SELECT CASE
                WHEN p.hold = 'PARKED' THEN 'PARKED'
                WHEN p.lease_token IS NOT NULL AND p.lease_expires_at > clock_timestamp() THEN 'IN_FLIGHT'
                WHEN p.lease_token IS NOT NULL THEN 'LEASE_EXPIRED'
                ELSE 'PENDING' END
           FROM symphony.payment_outbox_pending p WHERE p.outbox_id = p_outbox_id),
        (SELECT 'REDRIVEN' FROM symphony.payment_outbox_instructions i WHERE i.redrive_of = p_outbox_id),
        (SELECT a.state::TEXT FROM symphony.payment_outbox_attempts a
          WHERE a.outbox_id = p_outbox_id AND a.state IN ('DISPATCHED', 'FAILED')),
        (SELECT 'PENDING' FROM symphony.payment_outbox_instructions i WHERE i.outbox_id = p_outbox_id))
$$;
