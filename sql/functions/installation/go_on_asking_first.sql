-- go_on_asking_first: take this server as the installation's, with what was lost on the way on record.
--
-- Moves    nothing; whatever was asked for before the end of p_ask_first_for is inquired after before it is sent
-- Caller   beat_symphony_witness, accept_symphony_server; nobody else may
-- Locks    the installation's row
-- Refuses  nothing
-- Why      no row is touched: a claim compares an item's time with this, so a million waiting items delay no failover.
--          Items asked for afterwards count too, for a while: a producer asks again for what the loss took with it.
CREATE OR REPLACE FUNCTION symphony.go_on_asking_first(p_lost_since TIMESTAMPTZ, p_ask_first_for INTERVAL) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_now TIMESTAMPTZ := clock_timestamp();
BEGIN
    UPDATE symphony.symphony_installation i
       SET system_identifier = c.system_identifier, timeline = symphony.server_timeline(),
           database_oid = symphony.present_database(),
           decided_at = GREATEST(v_now, i.decided_at + INTERVAL '1 microsecond'), held_because = NULL, noticed_at = NULL,
           -- Something that a loss before this one made doubtful may still wait.
           lost_since = LEAST(p_lost_since, v_now, CASE WHEN i.ask_first_until > v_now OR EXISTS (
               SELECT FROM symphony.payment_outbox_pending p WHERE p.created_at < i.ask_first_until) THEN i.lost_since END),
           ask_first_until = GREATEST(i.ask_first_until, v_now + p_ask_first_for)
      FROM pg_control_system() c;
END $$;
