-- complete_outbox_attempts: many dispatches ended; write each down and move its item on.
--
-- Moves    leased -> terminal (row deleted) | leased -> scheduled | leased -> parked (unknown at the ceiling)
-- Caller   symphony_executor
-- Locks    the pending rows, in outbox_id order
-- Refuses  P7005 for arrays that do not fit together; per item, answered in `result` and never raised:
--          P7001 a terminal outcome exists already, P7002 lease lost, P7003 invalid state,
--          TERMINAL_BLOCKED the unique index refused a second terminal outcome, 23505 another constraint did
-- Why      the token is compared here, under the row lock, and not in Rust: a paused worker can wake after
--          its lease has passed to another. One item's trouble never costs the others their outcome.
CREATE OR REPLACE FUNCTION symphony.complete_outbox_attempts(
    p_worker_id TEXT, p_outbox_ids UUID[], p_lease_tokens UUID[], p_states TEXT[],
    p_rail_references TEXT[] DEFAULT NULL, p_rail_codes TEXT[] DEFAULT NULL, p_error_codes TEXT[] DEFAULT NULL,
    p_error_messages TEXT[] DEFAULT NULL, p_latencies_ms INT[] DEFAULT NULL, p_retry_delays_seconds INT[] DEFAULT NULL,
    p_unknowns BOOLEAN[] DEFAULT NULL, p_spends_attempts BOOLEAN[] DEFAULT NULL, p_asked_only BOOLEAN[] DEFAULT NULL,
    p_retry_afters_seconds INT[] DEFAULT NULL
) RETURNS TABLE (item_no INT, outbox_id UUID, result TEXT, attempt_no INT, state symphony.outbox_attempt_state, parked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count  INT := cardinality(p_outbox_ids);
    v_single RECORD;
    v_constraint TEXT;
BEGIN
    PERFORM symphony.require_outbox_count('p_outbox_ids', coalesce(v_count, 0), 4096);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_same_length(v_count,
        ARRAY['p_lease_tokens', 'p_states', 'p_rail_references', 'p_rail_codes', 'p_error_codes', 'p_error_messages',
              'p_latencies_ms', 'p_retry_delays_seconds', 'p_unknowns', 'p_spends_attempts', 'p_asked_only', 'p_retry_afters_seconds'],
        ARRAY[cardinality(p_lease_tokens), cardinality(p_states), coalesce(cardinality(p_rail_references), v_count),
              coalesce(cardinality(p_rail_codes), v_count), coalesce(cardinality(p_error_codes), v_count),
              coalesce(cardinality(p_error_messages), v_count), coalesce(cardinality(p_latencies_ms), v_count),
              coalesce(cardinality(p_retry_delays_seconds), v_count), coalesce(cardinality(p_unknowns), v_count),
              coalesce(cardinality(p_spends_attempts), v_count), coalesce(cardinality(p_asked_only), v_count),
              coalesce(cardinality(p_retry_afters_seconds), v_count)]);
    PERFORM symphony.require_outbox_bytes(
        pg_column_size(p_states), pg_column_size(p_rail_references), pg_column_size(p_rail_codes), pg_column_size(p_error_codes),
        pg_column_size(p_error_messages));
    IF v_count <> (SELECT count(DISTINCT t.id) FROM unnest(p_outbox_ids) t(id)) THEN
        RAISE EXCEPTION 'p_outbox_ids names an item twice, or null: give each item''s outcome once' USING ERRCODE = 'P7005';
    END IF;

    BEGIN
        RETURN QUERY SELECT * FROM symphony.settle_payment_attempts(
            p_worker_id, p_outbox_ids, p_lease_tokens, p_states, p_rail_references, p_rail_codes, p_error_codes,
            p_error_messages, p_latencies_ms, p_retry_delays_seconds, p_unknowns, false, p_spends_attempts, p_asked_only,
            p_retry_afters_seconds);
        RETURN;
    EXCEPTION WHEN unique_violation THEN
        NULL; -- the backstop: some item has a terminal row already. Find out which, without losing the rest.
    END;
    -- All locks first and in outbox_id order; then the answers in the order given.
    PERFORM FROM symphony.payment_outbox_pending p WHERE p.outbox_id = ANY (p_outbox_ids) ORDER BY p.outbox_id FOR UPDATE;
    FOR i IN 1 .. v_count LOOP
        BEGIN
            SELECT * INTO v_single FROM symphony.settle_payment_attempts(
                p_worker_id, p_outbox_ids[i:i], p_lease_tokens[i:i], p_states[i:i], p_rail_references[i:i], p_rail_codes[i:i],
                p_error_codes[i:i], p_error_messages[i:i], p_latencies_ms[i:i], p_retry_delays_seconds[i:i], p_unknowns[i:i],
                false, p_spends_attempts[i:i], p_asked_only[i:i], p_retry_afters_seconds[i:i]);
            item_no := i;
            outbox_id := v_single.outbox_id;
            result := v_single.result;
            attempt_no := v_single.attempt_no;
            state := v_single.state;
            parked := v_single.parked;
        EXCEPTION WHEN unique_violation THEN
            GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
            IF v_constraint = 'payment_outbox_attempts_one_terminal_per_outbox' THEN
                PERFORM symphony.record_terminal_blocked(p_outbox_ids[i], p_lease_tokens[i], p_worker_id);
                result := 'TERMINAL_BLOCKED';
            ELSE
                result := '23505';
            END IF;
            item_no := i;
            outbox_id := p_outbox_ids[i];
            attempt_no := NULL;
            state := NULL;
            parked := false;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
