-- accept_symphony_server: a person says that this installation goes on here, on a restored or copied database.
--
-- Moves    pending -> pending, inquired after before anything is sent
-- Caller   symphony_operator, symphony_approver
-- Locks    the installation's row, every pending payment
-- Refuses  P7005 no actor or reason, or a bad argument, P7006 there is nothing to accept, P7008 approval
-- Why      whatever was sent after the backup was taken is not in it. So every payment here may have been sent, and so may
--          whatever producers ask for again: their rails are asked first, and items of rails that cannot be asked are
--          parked by the worker that meets them. p_lost_since is how old a forgotten send can be: a rail's key lifetime
--          is counted from there. Events are published again under their ids; consumers know them.
CREATE OR REPLACE FUNCTION symphony.accept_symphony_server(
    p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_lost_since TIMESTAMPTZ DEFAULT NULL,
    p_ask_first_seconds INT DEFAULT 86400, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (finding TEXT, lost_since TIMESTAMPTZ, ask_first_until TIMESTAMPTZ, payments_to_ask BIGINT, payments_to_park BIGINT,
                 dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_known    symphony.symphony_installation;
    v_system   BIGINT := (SELECT c.system_identifier FROM pg_control_system() c);
    v_timeline INT := symphony.server_timeline();
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    PERFORM symphony.require_outbox_count('p_ask_first_seconds', p_ask_first_seconds, 31536000);
    IF p_lost_since > clock_timestamp() THEN
        RAISE EXCEPTION 'p_lost_since lies in the future: say until when this database knows everything' USING ERRCODE = 'P7005';
    END IF;
    dry_run := p_dry_run IS NOT FALSE;
    SELECT i.* INTO STRICT v_known FROM symphony.symphony_installation i FOR UPDATE;
    finding := concat_ws('; ', v_known.held_because,
        CASE WHEN v_system <> v_known.system_identifier
             THEN format('another server: system identifier %s instead of %s', v_system, v_known.system_identifier) END,
        CASE WHEN symphony.present_database() <> v_known.database_oid
             THEN 'another database than on record: a copy of it, or a restored dump' END,
        CASE WHEN v_timeline <> v_known.timeline THEN format('timeline %s instead of %s', v_timeline, v_known.timeline) END);
    IF finding = '' AND p_lost_since IS NOT NULL THEN
        finding := format('nothing by itself; %s says what is missing', p_actor);
    ELSIF finding = '' THEN
        RAISE EXCEPTION 'there is nothing to accept: this is the server this installation is known to run on'
            USING ERRCODE = 'P7006', HINT = 'If a backup was restored all the same, say until when it knows everything: p_lost_since, or symphony restore accept --lost-since TIME.';
    END IF;
    lost_since := coalesce(p_lost_since,
        (SELECT max(w.beat_at) FROM symphony.symphony_witnesses w), (SELECT max(c.last_claim_at) FROM symphony.payment_outbox_workers c),
        (SELECT min(p.created_at) FROM symphony.payment_outbox_pending p), clock_timestamp());
    ask_first_until := clock_timestamp() + make_interval(secs => p_ask_first_seconds);
    SELECT count(*) FILTER (WHERE coalesce(r.marks_sending, false) IS FALSE), count(*) FILTER (WHERE r.marks_sending)
      INTO payments_to_ask, payments_to_park
      FROM symphony.payment_outbox_pending p LEFT JOIN symphony.payment_outbox_rails r ON r.rail_type = p.rail_type;
    IF NOT dry_run THEN
        PERFORM symphony.go_on_asking_first(lost_since, make_interval(secs => p_ask_first_seconds));
        UPDATE symphony.payment_outbox_pending p SET must_inquire = true, endpoint = NULL WHERE NOT p.must_inquire;
        -- A dump reads its sequences at different times: its horizon may lie beyond its log. The next claim finds it anew.
        PERFORM setval('symphony.event_outbox_horizon', 0), setval('symphony.event_outbox_next_horizon', 0),
                setval('symphony.event_outbox_passed_epoch', 0);
        INSERT INTO symphony.payment_outbox_events (event_type, actor, approver, reason, details)
        VALUES ('SERVER_ACCEPTED', p_actor, p_approver, p_reason,
                jsonb_build_object('finding', finding, 'system_identifier_before', v_known.system_identifier, 'system_identifier', v_system,
                                   'timeline_before', v_known.timeline, 'timeline', v_timeline, 'lost_since', lost_since,
                                   'ask_first_until', ask_first_until, 'payments_to_ask', payments_to_ask,
                                   'payments_to_park', payments_to_park) || symphony.acting_token());
        PERFORM pg_notify(symphony.outbox_channel('outbox_pending'), 'new_work');
    END IF;
    RETURN NEXT;
END $$;
