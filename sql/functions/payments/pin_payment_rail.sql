-- pin_payment_rail: make sure a producer with a frozen snapshot sees the rail's present order.
--
-- Moves    nothing; above READ COMMITTED it may write the default row of a new rail
-- Caller   enqueue functions
-- Locks    nothing at READ COMMITTED; above it, the pending table for row changes, then the rail's row for share
-- Refuses  40001 above READ COMMITTED, when the rail was configured after the snapshot: retry
-- Why      whether a rail is FIFO is read by the statement that inserts. Under a frozen snapshot that read
--          can be stale, and one unordered row in a FIFO lane breaks its order; a locking read cannot be.
CREATE OR REPLACE FUNCTION symphony.pin_payment_rail(p_rail_type TEXT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        RETURN;
    END IF;
    -- The table before the rail's row: configure_payment_rail locks in this order too.
    LOCK TABLE symphony.payment_outbox_pending IN ROW EXCLUSIVE MODE;
    PERFORM FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type FOR SHARE;
    IF NOT FOUND THEN
        INSERT INTO symphony.payment_outbox_rails (rail_type) VALUES (p_rail_type) ON CONFLICT DO NOTHING;
    END IF;
END $$;
