-- lock_event_keys: lock keys until the transaction ends, in an order that all producers have.
--
-- Moves    nothing
-- Caller   enqueue_event_outbox_batch; nobody else may
-- Locks    the keys: first those ever seen, then new ones, each in sorted order
-- Refuses  40001 somebody made a key that this transaction's snapshot, above READ COMMITTED, cannot see
-- Why      whoever waits for a key holds only keys that come before it, so single calls never deadlock. A key that
--          became known in between would be locked out of turn: all are let go, and locked again.
CREATE OR REPLACE FUNCTION symphony.lock_event_keys(p_hashes BIGINT[]) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_known BIGINT[];
BEGIN
    LOOP
        BEGIN
            v_known := ARRAY(SELECT k.key_hash FROM symphony.event_outbox_keys k WHERE k.key_hash = ANY (p_hashes) ORDER BY k.key_hash FOR UPDATE);
            INSERT INTO symphony.event_outbox_keys (key_hash)
            SELECT h FROM unnest(p_hashes) h EXCEPT SELECT h FROM unnest(v_known) h ORDER BY 1;
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            IF current_setting('transaction_isolation') <> 'read committed' THEN
                RAISE EXCEPTION 'another transaction told the first event of the same key meanwhile' USING ERRCODE = '40001',
                    HINT = 'Repeat the whole transaction.';
            END IF;
        END;
    END LOOP;
END $$;
