-- replay_trigger_execution: run an ended execution again, with what it had and the script as it is now.
--
-- Moves    nothing -> pending, as an item of its own
-- Caller   symphony_operator, symphony_approver
-- Locks    the app against deletion
-- Refuses  P7005 invalid argument, P7006 its app or script is gone, P7007 no such execution, P7008 for an approver who is the actor
-- Why      the item that failed stays failed: the ledger is not rewritten.
CREATE OR REPLACE FUNCTION public.replay_trigger_execution(
    p_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (id UUID, replay_id UUID, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_ended public.trigger_outbox_executions;
BEGIN
    PERFORM symphony_internal.require_outbox_act(p_actor, p_reason, p_approver);
    SELECT e.* INTO v_ended FROM public.trigger_outbox_executions e WHERE e.id = p_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_id: there is no ended execution %', p_id USING ERRCODE = 'P7007';
    END IF;
    PERFORM FROM public.apps a WHERE a.id = v_ended.app_id FOR KEY SHARE;
    IF NOT EXISTS (SELECT FROM public.scripts s WHERE s.app_id = v_ended.app_id AND s.name = v_ended.script_name) THEN
        RAISE EXCEPTION 'execution %: its app or its script is gone', p_id USING ERRCODE = 'P7006';
    END IF;
    id := p_id;
    dry_run := p_dry_run;
    IF NOT p_dry_run THEN
        replay_id := symphony_internal.place_trigger(
            v_ended.app_id, v_ended.source_kind, NULL, v_ended.script_name, v_ended.payload, v_ended.origin_principal, NULL, 0, NULL, NULL,
            false, 1, '{1}');
        INSERT INTO public.trigger_outbox_events (event_type, id, app_id, actor, approver, reason, details)
        VALUES ('REPLAYED', p_id, v_ended.app_id, p_actor, p_approver, p_reason, jsonb_build_object('replay_id', replay_id));
    END IF;
    RETURN NEXT;
END $$;
