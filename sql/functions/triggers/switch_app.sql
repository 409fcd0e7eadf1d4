-- switch_app: pause or resume one app.
--
-- Moves    app: running <-> paused
-- Caller   pause_app, resume_app
-- Locks    the app
-- Refuses  P7005 no actor or reason, P7007 no such app
-- Why      as switch_payment_rail.
CREATE OR REPLACE FUNCTION symphony.switch_app(p_paused BOOLEAN, p_app TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_app    UUID;
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, NULL, NOT p_paused AND p_dry_run IS FALSE);
    -- The strong lock first, as delete_app: two who both had require_app's would wait for each other's.
    SELECT a.paused INTO v_paused FROM symphony.apps a WHERE a.name = p_app FOR UPDATE;
    v_app := symphony.require_app(p_app);
    UPDATE symphony.apps a SET paused = p_paused WHERE p_dry_run IS FALSE AND a.id = v_app AND a.paused <> p_paused;
    RETURN QUERY SELECT s.* FROM symphony.answer_outbox_switch(
        'triggers', p_app, v_paused, p_paused, p_actor, p_reason, p_dry_run, jsonb_build_object('app', p_app), v_app) s;
END $$;
