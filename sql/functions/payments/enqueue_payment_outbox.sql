-- enqueue_payment_outbox: ask for one payment, inside the caller's own transaction.
--
-- Moves    nothing -> pending (due at once)
-- Caller   symphony_ingest
-- Locks    the participant's row, until the caller's transaction ends: enqueue last
-- Refuses  P7004 the key belongs to another request, P7005 invalid argument
-- Why      new and known look the same to a producer that retries: both answer with the one item.
CREATE OR REPLACE FUNCTION symphony.enqueue_payment_outbox(
    p_instruction_id TEXT, p_participant_id TEXT, p_idempotency_key TEXT, p_rail_type TEXT, p_payload JSONB,
    p_traceparent TEXT DEFAULT NULL
) RETURNS TABLE (outbox_id UUID, sequence_id BIGINT, created_at TIMESTAMPTZ, state TEXT, duplicate BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_text   TEXT := CASE WHEN symphony.bulky_json_defect(p_payload) IS NULL THEN p_payload::TEXT END;
    v_defect TEXT := symphony.payment_request_defect(p_instruction_id, p_participant_id, p_idempotency_key,
                                                   p_rail_type, p_payload, octet_length(v_text), p_traceparent);
    v_conflict BOOLEAN;
    v_own      BOOLEAN;
BEGIN
    IF v_defect IS NOT NULL THEN
        RAISE EXCEPTION '%', v_defect USING ERRCODE = 'P7005';
    END IF;
    SELECT placed.outbox_id, placed.sequence_id, placed.created_at, placed.duplicate, placed.conflict, placed.own
      INTO outbox_id, sequence_id, created_at, duplicate, v_conflict, v_own
      FROM symphony.place_payment(
               p_instruction_id, p_participant_id, p_idempotency_key, p_rail_type, p_payload,
               symphony.payment_request_hash(p_participant_id, p_rail_type, v_text), p_traceparent) placed;
    IF v_conflict THEN
        -- Of another participant's item nothing is told but that there is one.
        RAISE EXCEPTION 'idempotency key reused: this instruction and key already belong to %',
            CASE WHEN v_own THEN format('item %s, asked with another rail or payload', outbox_id) ELSE 'another request' END
            USING ERRCODE = 'P7004', HINT = 'Repeat the first request unchanged, or choose a new key for a new payment.';
    END IF;
    state := CASE WHEN duplicate THEN symphony.payment_item_state(outbox_id) ELSE 'PENDING' END;
    RETURN NEXT;
END $$;
