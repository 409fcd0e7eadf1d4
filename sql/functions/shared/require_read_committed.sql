-- require_read_committed: refuse a worker's or operator's call in a transaction with a frozen snapshot.
--
-- Moves    nothing
-- Caller   every function that takes a lock and then looks again
-- Locks    nothing
-- Refuses  P7005 at REPEATABLE READ and SERIALIZABLE
-- Why      "lock, then look" is only sound when the look is newer than the lock. Under a frozen snapshot a
--          completed head would not see the item behind it, and the lane would stand still.
CREATE OR REPLACE FUNCTION symphony.require_read_committed() RETURNS VOID
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'transaction_isolation is %: workers and operators must use READ COMMITTED',
            current_setting('transaction_isolation')
            USING ERRCODE = 'P7005', HINT = 'Producers may use any isolation level.';
    END IF;
END $$;
