-- bump_participant_outbox_seq: allocate the next number of a participant's stream.
--
-- Moves    the participant's counter, one up
-- Caller   enqueue functions; nobody else may
-- Locks    the participant's row, until the caller's transaction ends
-- Refuses  P7005 blank participant
-- Why      a row and not a sequence: a rolled-back enqueue must give its number back, and a stream's order
--          must be its commit order. Both follow from holding this lock to the end.
CREATE OR REPLACE FUNCTION symphony.bump_participant_outbox_seq(participant_id TEXT) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_sequence_id BIGINT;
BEGIN
    PERFORM symphony.require_outbox_id('participant_id', bump_participant_outbox_seq.participant_id);
    INSERT INTO symphony.participant_outbox_sequences AS s (participant_id, next_sequence_id)
    VALUES (bump_participant_outbox_seq.participant_id, 2)
    ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + 1
    RETURNING s.next_sequence_id - 1 INTO v_sequence_id;
    RETURN v_sequence_id;
END $$;
