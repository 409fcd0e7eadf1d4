-- require_second_person: whoever approves is not who asked.
--
-- Moves    nothing
-- Caller   approve_outbox_request; nobody else may
-- Locks    nothing
-- Refuses  P7008 the login, the token or the person that asked, or whose token one of both made for the other; P7010 a token
--          that is not good, 42501 one that may not approve
-- Why      a session is known by its login; over the API, whose clients share one, by the token, which has a person. A person's
--          login and a person's token are the same person, and so are two tokens of one. Who hands out tokens could invent a
--          second person: a token counts for nothing against the login that made it.
CREATE OR REPLACE FUNCTION symphony.require_second_person(p_request symphony.outbox_approval_requests) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_token  symphony.api_tokens := symphony.present_api_token('approve');
    v_with   symphony.api_tokens;
    v_asked  TEXT;
    v_agrees TEXT := coalesce(v_token.person, session_user);
BEGIN
    SELECT t.* INTO v_with FROM symphony.api_tokens t WHERE t.token_id = p_request.token_id;
    v_asked := coalesce(v_with.person, p_request.session_role);
    IF p_request.session_role = session_user AND (p_request.token_id IS NULL OR v_token.token_id IS NULL) THEN
        RAISE EXCEPTION 'request % was made from this login, %: a second person approves it, from a login of their own', p_request.request_no, session_user
            USING ERRCODE = 'P7008';
    ELSIF p_request.token_id = v_token.token_id OR symphony.canonical_person(v_asked) = symphony.canonical_person(v_agrees) THEN
        RAISE EXCEPTION 'request % was made by %: a second person approves it, with a login or token of their own', p_request.request_no, v_asked
            USING ERRCODE = 'P7008';
    ELSIF symphony.canonical_person(v_token.session_role) = symphony.canonical_person(v_asked)
       OR symphony.canonical_person(v_with.session_role) = symphony.canonical_person(v_agrees) THEN
        RAISE EXCEPTION 'request % was made by %, and one of both made the token of the other: somebody else approves it', p_request.request_no, v_asked
            USING ERRCODE = 'P7008';
    END IF;
END $$;
