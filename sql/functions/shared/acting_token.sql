-- acting_token: with which API tokens this is done, for the details of a line of narrative; empty if with none.
--
-- Moves    nothing
-- Caller   every act, for what it writes down; nobody else may
-- Locks    nothing
-- Refuses  P7010 an unknown, expired or revoked token
-- Why      all clients of the API share its login, and one person may have several tokens: the line says which one to revoke.
--          An approved act is done with the token that asked and with the one that approved.
CREATE OR REPLACE FUNCTION symphony.acting_token() RETURNS JSONB
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_present symphony.api_tokens := symphony.present_api_token(NULL);
    v_asked   UUID;
BEGIN
    SELECT a.token_id INTO v_asked FROM symphony.outbox_approved_acts a WHERE a.transaction_id = pg_current_xact_id_if_assigned();
    IF NOT FOUND THEN
        RETURN CASE WHEN v_present.token_id IS NULL THEN '{}'::JSONB
                    ELSE jsonb_build_object('token_id', v_present.token_id, 'token', v_present.name) END;
    END IF;
    RETURN coalesce((SELECT jsonb_build_object('token_id', t.token_id, 'token', t.name) FROM symphony.api_tokens t WHERE t.token_id = v_asked), '{}')
        || CASE WHEN v_present.token_id IS NULL THEN '{}'::JSONB
                ELSE jsonb_build_object('approver_token_id', v_present.token_id, 'approver_token', v_present.name) END;
END $$;
