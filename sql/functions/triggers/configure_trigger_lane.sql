-- configure_trigger_lane: pause or resume the lane or one app, and change what holds for all apps.
--
-- Moves    the lane's settings, or an app's switch
-- Caller   symphony_operator, symphony_approver
-- Locks    the settings' row, or the app's
-- Refuses  P7005 invalid argument, P7007 no such app, P7008 approval, to change p_approval_required always
-- Why      what is NULL stays as it is. A paused app's rows are written as ever, and wait.
CREATE OR REPLACE FUNCTION symphony.configure_trigger_lane(
    p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_app TEXT DEFAULT NULL, p_paused BOOLEAN DEFAULT NULL,
    p_depth_max INT DEFAULT NULL, p_keep_executions BOOLEAN DEFAULT NULL, p_approval_required BOOLEAN DEFAULT NULL
) RETURNS TABLE (paused BOOLEAN, depth_max INT, keep_executions BOOLEAN, approval_required BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app UUID;
BEGIN
    -- To pause is for one person alone.
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver,
        NOT (coalesce(p_paused, false) AND num_nonnulls(p_depth_max, p_keep_executions, p_approval_required) = 0));
    PERFORM symphony.require_approval_change(s.approval_required, p_approval_required)
       FROM (SELECT x.approval_required FROM symphony.trigger_outbox_settings x FOR UPDATE) s WHERE p_approval_required IS NOT NULL;
    IF p_depth_max NOT BETWEEN 0 AND 100 THEN
        RAISE EXCEPTION 'p_depth_max is %: it must be between 0 and 100', p_depth_max USING ERRCODE = 'P7005';
    ELSIF p_app IS NOT NULL AND num_nonnulls(p_depth_max, p_keep_executions, p_approval_required) > 0 THEN
        RAISE EXCEPTION 'p_app: only p_paused can be set for one app' USING ERRCODE = 'P7005';
    END IF;
    IF p_app IS NOT NULL THEN
        v_app := symphony.require_app(p_app);
        UPDATE symphony.apps a SET paused = coalesce(p_paused, a.paused) WHERE a.id = v_app;
    ELSE
        UPDATE symphony.trigger_outbox_settings s
           SET paused = coalesce(p_paused, s.paused), depth_max = coalesce(p_depth_max, s.depth_max),
               keep_executions = coalesce(p_keep_executions, s.keep_executions),
               approval_required = coalesce(p_approval_required, s.approval_required);
    END IF;
    PERFORM symphony.record_outbox_act(
        'triggers', CASE WHEN p_paused THEN 'PAUSED' WHEN NOT p_paused THEN 'RESUMED' ELSE 'CONFIGURED' END, NULL, p_actor, p_approver, p_reason,
        jsonb_strip_nulls(jsonb_build_object('app', p_app, 'paused', p_paused, 'depth_max', p_depth_max, 'keep_executions', p_keep_executions,
                                            'approval_required', p_approval_required)),
        v_app);
    RETURN QUERY SELECT coalesce((SELECT a.paused FROM symphony.apps a WHERE a.id = v_app), s.paused), s.depth_max, s.keep_executions, s.approval_required
                   FROM symphony.trigger_outbox_settings s;
END $$;
