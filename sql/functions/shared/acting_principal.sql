-- acting_principal: who acts in this transaction: whoever asked for the approved act, the API token, else the login.
--
-- Moves    nothing -> known, as note_principal
-- Caller   push_app, replay_trigger_execution, call_outbox_act, and what producers call; nobody else may
-- Locks    nothing
-- Refuses  P7010 an unknown, expired or revoked token
-- Why      it is proved, never named: the token by its secret, the login by the session. An approver carries out what
--          another person asked for, and that person is the one who acts.
CREATE OR REPLACE FUNCTION symphony.acting_principal() RETURNS UUID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_token symphony.api_tokens;
    v_id    UUID;
BEGIN
    SELECT a.asked_by INTO v_id FROM symphony.outbox_approved_acts a WHERE a.transaction_id = pg_current_xact_id_if_assigned();
    IF FOUND THEN
        RETURN v_id;
    END IF;
    v_token := symphony.present_api_token(NULL);
    IF v_token.token_id IS NOT NULL THEN
        RETURN symphony.note_principal('token', v_token.person || '/' || v_token.name);
    END IF;
    RETURN symphony.note_principal('login', session_user);
END $$;
