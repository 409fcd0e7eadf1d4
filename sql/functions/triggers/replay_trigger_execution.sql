-- replay_trigger_execution: run an ended execution again, with what it had and the script as it is now.
--
-- Moves    nothing -> pending, as an item of its own
-- Caller   symphony_operator, symphony_approver
-- Locks    the app against deletion; a message's order, if its queue is serial
-- Refuses  P7005 invalid argument, P7006 its app or script is gone, P7007 no such execution, P7008 approval
-- Why      the item that failed stays failed: the ledger is not rewritten. Who caused it did; where nobody is known, whoever
--          replays it does. A message of a serial queue takes its turn behind those that are there. Its own key is not
--          kept, so that of another queue has no order.
CREATE OR REPLACE FUNCTION symphony.replay_trigger_execution(
    p_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (id UUID, replay_id UUID, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_ended symphony.trigger_outbox_executions;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    SELECT e.* INTO v_ended FROM symphony.trigger_outbox_executions e WHERE e.id = p_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_id: there is no ended execution %', p_id USING ERRCODE = 'P7007';
    END IF;
    PERFORM FROM symphony.apps a WHERE a.id = v_ended.app_id FOR KEY SHARE;
    IF NOT EXISTS (SELECT FROM symphony.scripts s WHERE s.app_id = v_ended.app_id AND s.name = v_ended.script_name) THEN
        RAISE EXCEPTION 'execution %: its app or its script is gone', p_id USING ERRCODE = 'P7006';
    END IF;
    id := p_id;
    dry_run := p_dry_run IS NOT FALSE;
    IF p_dry_run IS FALSE THEN
        replay_id := symphony.place_trigger(
            v_ended.app_id, v_ended.source_kind, NULL, v_ended.script_name, v_ended.payload,
            coalesce(v_ended.origin_principal, symphony.acting_principal()), v_ended.principal, 0, NULL, NULL, false, 1, '{1}',
            p_order_key => CASE WHEN v_ended.source_kind = 'queue' THEN symphony.queue_order(v_ended.app_id, v_ended.payload->>'queue', NULL) END,
            p_traceparent => v_ended.traceparent);
        INSERT INTO symphony.trigger_outbox_events (event_type, id, app_id, actor, approver, reason, details)
        VALUES ('REPLAYED', p_id, v_ended.app_id, p_actor, p_approver, p_reason, jsonb_build_object('replay_id', replay_id) || symphony.acting_token());
    END IF;
    RETURN NEXT;
END $$;
