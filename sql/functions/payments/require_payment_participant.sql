-- require_payment_participant: refuse a participant that nobody has ever paid for.
--
-- Moves    nothing
-- Caller   pause_payment_participant, resume_payment_participant
-- Locks    nothing
-- Refuses  P7005 no name, P7007 no such participant
-- Why      as require_payment_rail: a mistyped name must not look like success.
CREATE OR REPLACE FUNCTION symphony.require_payment_participant(p_participant_id TEXT) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    PERFORM symphony.require_outbox_id('p_participant_id', p_participant_id);
    IF NOT EXISTS (SELECT FROM symphony.participant_outbox_sequences s WHERE s.participant_id = p_participant_id)
       AND NOT EXISTS (SELECT FROM symphony.payment_outbox_paused_participants s WHERE s.participant_id = p_participant_id) THEN
        RAISE EXCEPTION 'p_participant_id names no participant that a payment was ever asked for: %', p_participant_id USING ERRCODE = 'P7007';
    END IF;
END $$;
