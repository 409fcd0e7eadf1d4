-- delete_app: an app and all that is its own; its ledger stays.
--
-- Moves    pending -> FAILED (APP_DELETED), then everything of the app -> gone
-- Caller   symphony_operator, symphony_approver
-- Locks    the app and its pending rows
-- Refuses  P7005 invalid argument, P7007 no such app, P7008 approval
-- Why      the ledger would otherwise have items that never ended. Its triggers go first: what ends here fires nothing.
CREATE OR REPLACE FUNCTION symphony.delete_app(p_app TEXT, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (app_id UUID, items INT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_item symphony.trigger_outbox_pending;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    -- The strong lock first: two who delete would each hold the weak one against the other.
    IF p_dry_run IS FALSE THEN
        PERFORM FROM symphony.apps a WHERE a.name = p_app FOR UPDATE;
    END IF;
    app_id := symphony.require_app(p_app);
    dry_run := p_dry_run IS NOT FALSE;
    SELECT count(*) INTO items FROM symphony.trigger_outbox_pending p WHERE p.app_id = delete_app.app_id;
    IF p_dry_run IS FALSE THEN
        DELETE FROM symphony.triggers t WHERE t.app_id = delete_app.app_id;
        items := 0;
        FOR v_item IN SELECT p.* FROM symphony.trigger_outbox_pending p WHERE p.app_id = delete_app.app_id ORDER BY p.id FOR UPDATE LOOP
            PERFORM symphony.end_triggers(ARRAY[v_item], coalesce(v_item.claimed_by, p_actor), '{FAILED}',
                p_error_codes => '{APP_DELETED}', p_error_messages => '{"its app was deleted"}');
            items := items + 1;
        END LOOP;
        DELETE FROM symphony.apps a WHERE a.id = delete_app.app_id;
        DELETE FROM symphony.trigger_outbox_executions e
         WHERE e.app_id = delete_app.app_id AND NOT (SELECT s.keep_executions FROM symphony.trigger_outbox_settings s);
        INSERT INTO symphony.trigger_outbox_events (event_type, app_id, actor, approver, reason, details)
        VALUES ('DELETED', app_id, p_actor, p_approver, p_reason, jsonb_build_object('app', p_app, 'items', items) || symphony.acting_token());
    END IF;
    RETURN NEXT;
END $$;
