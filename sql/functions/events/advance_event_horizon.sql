-- advance_event_horizon: find out up to which position nobody can add to the log any more, and where that is not so.
--
-- Moves    the horizon, forward
-- Caller   claim_event_outbox_batch; nobody else may
-- Locks    the right to move it, and the epoch that has ended if nobody is open in it: tried, never waited for, and let
--          go before it answers
-- Refuses  nothing
-- Why      the next horizon is read before the epoch moves on: whoever registers in the new one takes positions above
--          it. An epoch is ended only when the one before it is empty, so there are two at most and none is forgotten.
--          A producer that stays open would hold up all others' events: after half a second its epoch is passed, and
--          only the groups of buckets it is registered for are held, each at the position before the first event of the
--          earliest open producer in it: so successors that overlap hold nothing for longer than each is open.
--          passed_epoch is set before the horizon moves and read after it, so nobody sees the one without the other; it
--          is cleared by whoever may move it. What is found holds whether or not the caller commits, so it is kept
--          outside of transactions. The block is always undone, and its locks with it: a worker that stops in the
--          middle of a claim must not keep them. A transaction that has written moves nothing: it may have told events,
--          and one's own locks refuse nobody.
CREATE OR REPLACE FUNCTION symphony.advance_event_horizon(OUT horizon BIGINT, OUT group_horizons BIGINT[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    c_patience_ms CONSTANT BIGINT := 500;
    v_class   INT := symphony.outbox_epoch_lock();
    v_now_ms  BIGINT := (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT;
    v_next    BIGINT;
    v_epoch   BIGINT;
    v_passed  BIGINT;
    v_ended   BOOLEAN;
BEGIN
    horizon := coalesce(pg_sequence_last_value('symphony.event_outbox_horizon'), 0);
    -- Epochs before this one are passed; 0: none is.
    v_passed := coalesce(pg_sequence_last_value('symphony.event_outbox_passed_epoch'), 0);
    IF v_passed = 0 AND coalesce(pg_sequence_last_value('symphony.event_outbox_position'), 0) <= horizon THEN
        RETURN;
    END IF;
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        BEGIN
            -- -1 is no epoch: whoever holds it moves the horizon.
            IF pg_try_advisory_xact_lock(v_class, -1) THEN
                horizon := coalesce(pg_sequence_last_value('symphony.event_outbox_horizon'), 0);
                v_next := coalesce(pg_sequence_last_value('symphony.event_outbox_next_horizon'), 0);
                v_epoch := coalesce(pg_sequence_last_value('symphony.event_outbox_epoch'), 0);
                v_passed := coalesce(pg_sequence_last_value('symphony.event_outbox_passed_epoch'), 0);
                IF v_passed > 0 AND NOT EXISTS (SELECT FROM symphony.registered_event_producers(v_epoch) p WHERE v_passed > ANY (p.epochs)) THEN
                    v_passed := setval('symphony.event_outbox_passed_epoch', 0);
                END IF;
                -- The epoch that has ended; then, if more was told since, the present one, which ends now.
                FOR i IN 1 .. 2 LOOP
                    v_ended := pg_try_advisory_xact_lock(v_class, ((v_epoch - 1) % 2147483647)::INT);
                    IF NOT v_ended AND v_now_ms - coalesce(pg_sequence_last_value('symphony.event_outbox_epoch_began_ms'), 0) >= c_patience_ms THEN
                        v_passed := setval('symphony.event_outbox_passed_epoch', v_epoch);
                        v_ended := true;
                    END IF;
                    EXIT WHEN NOT v_ended;
                    IF v_next > horizon THEN
                        horizon := setval('symphony.event_outbox_horizon', v_next);
                    END IF;
                    v_next := coalesce(pg_sequence_last_value('symphony.event_outbox_position'), 0);
                    EXIT WHEN i = 2 OR v_next <= horizon;
                    PERFORM setval('symphony.event_outbox_next_horizon', v_next), setval('symphony.event_outbox_epoch_began_ms', v_now_ms);
                    v_epoch := setval('symphony.event_outbox_epoch', v_epoch + 1);
                END LOOP;
            END IF;
            RAISE EXCEPTION 'undone' USING ERRCODE = 'raise_exception';
        EXCEPTION WHEN raise_exception THEN
            NULL; -- all but the sequences
        END;
    END IF;
    -- Groups in which nobody was passed go up to the horizon.
    IF v_passed > 0 THEN
        group_horizons := ARRAY(
            SELECT LEAST(horizon, min(p.since))
              FROM generate_series(0, 31) g
              LEFT JOIN symphony.registered_event_producers(coalesce(pg_sequence_last_value('symphony.event_outbox_epoch'), 0)) p
                ON v_passed > ANY (p.epochs) AND (p.groups && ARRAY[g, 32] OR p.groups IS NULL)
             GROUP BY g ORDER BY g);
    END IF;
END $$;
