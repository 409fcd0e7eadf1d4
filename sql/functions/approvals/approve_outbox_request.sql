-- approve_outbox_request: a second person agrees, and the act is done.
--
-- Moves    request: waiting -> APPROVED; and as the act does
-- Caller   symphony_approver
-- Locks    the request, then as the act
-- Refuses  P7005 no actor or reason, P7006 decided already, or expired, P7007 no such request, P7008 the login, token or
--          person that asked; and whatever the act refuses now
-- Why      the act runs here, once, as it was asked for and under the checks of this moment: nothing lies between the approval
--          and the act. What is refused now leaves the request waiting. Of many at once those that are refused stay as
--          they are, and the answer says which.
CREATE OR REPLACE FUNCTION symphony.approve_outbox_request(
    p_request_no BIGINT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (request_no BIGINT, lane TEXT, act TEXT, state TEXT, answer JSONB, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_request symphony.outbox_approval_requests := symphony.lock_outbox_request(p_request_no, p_actor, p_reason);
    v_one     JSONB;
    v_done    INT := 0;
    v_refused TEXT;
BEGIN
    PERFORM symphony.require_second_person(v_request);
    IF symphony.canonical_person(v_request.actor) = symphony.canonical_person(p_actor) THEN
        RAISE EXCEPTION 'p_actor is who asked for request %: the ledger must name two people', p_request_no USING ERRCODE = 'P7008';
    END IF;
    dry_run := p_dry_run IS NOT FALSE;
    IF NOT dry_run THEN
        PERFORM symphony.record_outbox_approval('APPROVAL_GIVEN', v_request, p_actor, p_reason);
    END IF;
    INSERT INTO symphony.outbox_approved_acts (transaction_id, approver, token_id, asked_by)
    VALUES (pg_current_xact_id(), p_actor, v_request.token_id, coalesce(
        (SELECT symphony.note_principal('token', t.person || '/' || t.name) FROM symphony.api_tokens t WHERE t.token_id = v_request.token_id),
        symphony.note_principal('login', v_request.session_role)));
    IF jsonb_typeof(v_request.arguments) = 'object' THEN
        answer := symphony.call_outbox_act(v_request.act, v_request.arguments, v_request.actor, v_request.reason, p_actor, dry_run);
    ELSE
        answer := '[]';
        FOR v_one IN SELECT a FROM jsonb_array_elements(v_request.arguments) a LOOP
            BEGIN
                answer := answer || symphony.call_outbox_act(v_request.act, v_one, v_request.actor, v_request.reason, p_actor, dry_run);
                v_done := v_done + 1;
            EXCEPTION WHEN OTHERS THEN
                IF SQLSTATE NOT LIKE 'P70%' THEN
                    RAISE;
                END IF;
                v_refused := coalesce(v_refused, SQLERRM);
                answer := answer || jsonb_build_object('refused', SQLSTATE, 'message', SQLERRM, 'arguments', v_one);
            END;
        END LOOP;
        IF v_done = 0 THEN
            RAISE EXCEPTION 'none of what request % asks for can be done any more: %', p_request_no, v_refused USING ERRCODE = 'P7006';
        END IF;
    END IF;
    DELETE FROM symphony.outbox_approved_acts a WHERE a.transaction_id = pg_current_xact_id();
    IF NOT dry_run THEN
        INSERT INTO symphony.outbox_approval_decisions (request_no, decision, actor, reason, token_id, answer)
        VALUES (p_request_no, 'APPROVED', p_actor, p_reason, (symphony.present_api_token('approve')).token_id, answer);
    END IF;
    request_no := p_request_no;
    lane := v_request.lane;
    act := v_request.act;
    state := 'APPROVED';
    RETURN NEXT;
END $$;
