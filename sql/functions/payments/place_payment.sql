-- place_payment: write one valid request, or find the item it already is.
--
-- Moves    nothing -> pending
-- Caller   enqueue_payment_outbox and the careful path of its batch form; nobody else may
-- Locks    the participant's row, until the caller's transaction ends
-- Refuses  nothing: a reused key is answered as a conflict. 40001 may arise above READ COMMITTED
-- Why      the unique constraint decides, not the read before it: between a read and the insert a twin can
--          be enqueued and even completed (2,037 of 2,380 keys went out twice in the version that trusted
--          the read). The read only saves known items the lock.
CREATE OR REPLACE FUNCTION symphony.place_payment(
    p_instruction_id TEXT, p_participant_id TEXT, p_idempotency_key TEXT, p_rail_type TEXT,
    p_payload JSONB, p_request_hash BYTEA, p_traceparent TEXT,
    OUT outbox_id UUID, OUT sequence_id BIGINT, OUT created_at TIMESTAMPTZ, OUT duplicate BOOLEAN, OUT conflict BOOLEAN,
    OUT own BOOLEAN
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_hash BYTEA;
BEGIN
    duplicate := true;
    SELECT i.outbox_id, i.sequence_id, i.created_at, i.request_hash, i.participant_id = p_participant_id
      INTO outbox_id, sequence_id, created_at, v_hash, own
      FROM symphony.payment_outbox_instructions i
     WHERE i.instruction_id = p_instruction_id AND i.idempotency_key = p_idempotency_key AND i.redrive_no = 0;
    IF NOT FOUND THEN
        PERFORM symphony.pin_payment_rail(p_rail_type);
        sequence_id := symphony.bump_participant_outbox_seq(p_participant_id);
        INSERT INTO symphony.payment_outbox_instructions
            (instruction_id, idempotency_key, participant_id, sequence_id, rail_type, payload, request_hash, traceparent)
        VALUES (p_instruction_id, p_idempotency_key, p_participant_id, sequence_id, p_rail_type, p_payload,
                p_request_hash, p_traceparent)
        ON CONFLICT (instruction_id, idempotency_key, redrive_no) DO NOTHING
        RETURNING payment_outbox_instructions.outbox_id, payment_outbox_instructions.created_at
             INTO outbox_id, created_at;
        IF FOUND THEN
            INSERT INTO symphony.payment_outbox_pending
                (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                 next_attempt_at, created_at, lane_position)
            VALUES (outbox_id, p_instruction_id, p_participant_id, sequence_id, p_idempotency_key, p_rail_type,
                    created_at, created_at,
                    (SELECT sequence_id FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type AND r.fifo));
            duplicate := false;
            conflict := false;
            own := true;
            RETURN;
        END IF;
        -- A twin won. Its row is ours to read now, and the number goes back: we still hold the stream's lock.
        UPDATE symphony.participant_outbox_sequences s SET next_sequence_id = s.next_sequence_id - 1
         WHERE s.participant_id = p_participant_id;
        SELECT i.outbox_id, i.sequence_id, i.created_at, i.request_hash, i.participant_id = p_participant_id
          INTO STRICT outbox_id, sequence_id, created_at, v_hash, own
          FROM symphony.payment_outbox_instructions i
         WHERE i.instruction_id = p_instruction_id AND i.idempotency_key = p_idempotency_key AND i.redrive_no = 0;
    END IF;
    conflict := v_hash <> p_request_hash;
END $$;
