-- configure_payment_rail: say what the database must know of a rail; NULL leaves a setting as it is.
--
-- Moves    nothing
-- Caller   symphony_operator, symphony_approver
-- Locks    the rail's row; to change order or marking, the whole pending table, waiting at most 3 s
-- Refuses  P7005 invalid argument, P7006 the order of a rail with pending items cannot change, P7008 approval
-- Why      items already queued were promised the order they were queued under. The table lock makes the
--          check and the switch one moment for every producer and every claim.
CREATE OR REPLACE FUNCTION symphony.configure_payment_rail(
    p_rail_type TEXT, p_actor TEXT, p_reason TEXT, p_fifo BOOLEAN DEFAULT NULL, p_on_failed TEXT DEFAULT NULL,
    p_marks_sending BOOLEAN DEFAULT NULL, p_give_up_after_seconds INT DEFAULT NULL
) RETURNS TABLE (rail_type TEXT, fifo BOOLEAN, on_failed TEXT, marks_sending BOOLEAN, paused BOOLEAN, give_up_after_seconds INT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, NULL, true);
    PERFORM symphony.require_outbox_id('p_rail_type', p_rail_type);
    IF p_on_failed NOT IN ('block', 'continue') THEN
        RAISE EXCEPTION 'p_on_failed must be block or continue' USING ERRCODE = 'P7005';
    END IF;
    IF p_give_up_after_seconds IS NOT NULL THEN
        PERFORM symphony.require_outbox_count('p_give_up_after_seconds', p_give_up_after_seconds, 31536000);
    END IF;
    -- The table before the rail's row, as producers do.
    IF (p_fifo OR p_marks_sending) AND NOT EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type)
       OR EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type
                   AND (r.fifo <> p_fifo OR r.marks_sending <> p_marks_sending)) THEN
        BEGIN
            LOCK TABLE symphony.payment_outbox_pending IN EXCLUSIVE MODE;
        EXCEPTION WHEN lock_not_available THEN
            -- Waiting longer would stop everybody who queues up behind this lock.
            RAISE EXCEPTION 'producers have open transactions: the rail''s order and marking can be changed when they are done' USING ERRCODE = 'P7006';
        END;
    END IF;
    INSERT INTO symphony.payment_outbox_rails (rail_type) VALUES (p_rail_type) ON CONFLICT DO NOTHING;
    IF EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type AND r.marks_sending <> p_marks_sending)
       AND EXISTS (SELECT FROM symphony.payment_outbox_pending p WHERE p.rail_type = p_rail_type AND p.lease_token IS NOT NULL) THEN
        RAISE EXCEPTION 'p_marks_sending cannot change while the rail has items in flight' USING ERRCODE = 'P7006';
    END IF;
    IF EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type AND r.fifo <> p_fifo) THEN
        IF EXISTS (SELECT FROM symphony.payment_outbox_pending p WHERE p.rail_type = p_rail_type)
           OR EXISTS (SELECT FROM symphony.payment_outbox_blocked_lanes b WHERE b.rail_type = p_rail_type) THEN
            RAISE EXCEPTION 'p_fifo cannot change while the rail has pending items or blocked lanes: let it drain first'
                USING ERRCODE = 'P7006';
        END IF;
    END IF;
    UPDATE symphony.payment_outbox_rails r
       SET fifo = coalesce(p_fifo, r.fifo), on_failed = coalesce(p_on_failed, r.on_failed),
           marks_sending = coalesce(p_marks_sending, r.marks_sending),
           give_up_after_seconds = coalesce(p_give_up_after_seconds, r.give_up_after_seconds), updated_at = clock_timestamp()
     WHERE r.rail_type = p_rail_type;
    PERFORM symphony.record_outbox_act('payments', 'CONFIGURED', NULL, p_actor, NULL, p_reason, jsonb_strip_nulls(jsonb_build_object(
        'rail_type', p_rail_type, 'fifo', p_fifo, 'on_failed', p_on_failed, 'marks_sending', p_marks_sending,
        'give_up_after_seconds', p_give_up_after_seconds)));
    RETURN QUERY SELECT r.rail_type, r.fifo, r.on_failed, r.marks_sending, r.paused, r.give_up_after_seconds
                   FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type;
END $$;
