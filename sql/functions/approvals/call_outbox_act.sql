-- call_outbox_act: do an act by its name, or only see what it would answer.
--
-- Moves    as the act does
-- Caller   request_outbox_approval, approve_outbox_request; nobody else may
-- Locks    as the act does
-- Refuses  P7005 an argument that the act does not take, lacks or cannot read, and whatever the act refuses
-- Why      the arguments stand in the request by name, and the catalog says what the act takes: what is approved is what is
--          done, and an argument that nobody knows is refused instead of ignored. What has no dry run of its own is done
--          and rolled back.
CREATE OR REPLACE FUNCTION symphony.call_outbox_act(
    p_act TEXT, p_arguments JSONB, p_actor TEXT, p_reason TEXT, p_approver TEXT, p_dry_run BOOLEAN
) RETURNS JSONB
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- These come from the request itself.
    v_own      TEXT[] := ARRAY['p_actor', 'p_reason', 'p_approver', 'p_dry_run'];
    v_takes    TEXT[];
    v_needs    TEXT[];
    v_argument TEXT;
    v_answer   JSONB;
BEGIN
    IF jsonb_typeof(p_arguments) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'p_arguments must be an object with the arguments of % by name', p_act USING ERRCODE = 'P7005';
    END IF;
    SELECT p.proargnames[1:p.pronargs], p.proargnames[1:p.pronargs - p.pronargdefaults]
      INTO STRICT v_takes, v_needs
      FROM pg_proc p WHERE p.pronamespace = 'symphony'::regnamespace AND p.proname = p_act;
    SELECT k INTO v_argument FROM jsonb_object_keys(p_arguments) k WHERE k <> ALL (v_takes) OR k = ANY (v_own) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'p_arguments has % that % does not take', quote_literal(left(v_argument, 64)), p_act USING ERRCODE = 'P7005';
    END IF;
    SELECT n INTO v_argument FROM unnest(v_needs) n WHERE n <> ALL (v_own) AND NOT p_arguments ? n LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'p_arguments lacks %, which % needs', v_argument, p_act USING ERRCODE = 'P7005';
    END IF;
    IF p_dry_run IS FALSE OR 'p_dry_run' = ANY (v_takes) THEN
        v_answer := symphony.perform_outbox_act(p_act, p_arguments, p_actor, p_reason, p_approver, p_dry_run IS NOT FALSE);
        -- A dry run only tells this; the act itself would be refused.
        IF p_dry_run IS NOT FALSE AND v_answer->'needs_despite_unknown' = 'true' AND p_arguments->'p_despite_unknown' IS DISTINCT FROM 'true' THEN
            RAISE EXCEPTION 'p_despite_unknown is missing: the rail has never said what became of a try of item %, or of what it redrives: the money may have moved', v_answer->>'outbox_id'
                USING ERRCODE = 'P7009', HINT = 'Ask the rail; if you act all the same, the reason must say how you know.';
        END IF;
        RETURN v_answer;
    END IF;
    BEGIN
        INSERT INTO symphony.outbox_approved_acts (transaction_id, approver, asked_by)
        VALUES (pg_current_xact_id(), 'a dry run', symphony.acting_principal()) ON CONFLICT DO NOTHING;
        v_answer := symphony.perform_outbox_act(p_act, p_arguments, p_actor, p_reason, p_approver, true);
        RAISE EXCEPTION 'a dry run' USING ERRCODE = 'P7DRY';
    EXCEPTION WHEN SQLSTATE 'P7DRY' THEN
        RETURN v_answer; -- What the act has done is undone; its answer is kept.
    END;
EXCEPTION WHEN invalid_text_representation OR invalid_datetime_format OR datetime_field_overflow OR numeric_value_out_of_range
             OR invalid_parameter_value THEN
    RAISE EXCEPTION 'p_arguments: a value is not of the type that % takes', p_act USING ERRCODE = 'P7005';
END $$;
