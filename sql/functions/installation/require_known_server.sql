-- require_known_server: refuse to hand out work on a server that nobody has said this installation moved to.
--
-- Moves    nothing
-- Caller   the claim functions of every lane, and mark_outbox_sending
-- Locks    nothing
-- Refuses  P7020 another system identifier, database or timeline than on record, or held for a person
-- Why      a restored backup or a clone would send again what was sent after it was taken. The claim asks, because it is
--          the one thing no worker can do without. A commit that the server could lose in a crash is no lease. One query,
--          whose plan is kept: calls of present_database() are planned each time, in every claim.
CREATE OR REPLACE FUNCTION symphony.require_known_server() RETURNS symphony.symphony_installation
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_here  RECORD;
    v_known symphony.symphony_installation;
BEGIN
    PERFORM symphony.require_durable_commit();
    SELECT i AS known, c.system_identifier, d.oid AS database_oid, symphony.server_timeline() AS timeline INTO STRICT v_here
      FROM symphony.symphony_installation i, pg_control_system() c, pg_database d
     WHERE d.datname = current_database();
    v_known := v_here.known;
    IF v_known.held_because IS NOT NULL THEN
        RAISE EXCEPTION 'nothing is dispatched here: %', v_known.held_because
            USING ERRCODE = 'P7020', HINT = 'symphony restore check says what was found, symphony restore accept goes on.';
    ELSIF v_here.system_identifier <> v_known.system_identifier THEN
        RAISE EXCEPTION 'nothing is dispatched here: this is another server (system identifier % instead of %), so a restored or copied database',
            v_here.system_identifier, v_known.system_identifier
            USING ERRCODE = 'P7020', HINT = 'symphony restore check says what was found, symphony restore accept goes on.';
    ELSIF v_here.database_oid <> v_known.database_oid THEN
        RAISE EXCEPTION 'nothing is dispatched here: this is another database than on record, so a copy of it or a restored dump'
            USING ERRCODE = 'P7020', HINT = 'symphony restore check says what was found, symphony restore accept goes on.';
    ELSIF v_here.timeline <> v_known.timeline THEN
        RAISE EXCEPTION 'nothing is dispatched here yet: the server is on timeline % instead of %, after a failover or a restore',
            v_here.timeline, v_known.timeline
            USING ERRCODE = 'P7020', HINT = 'Workers that have seen the earlier timeline decide within two seconds; without one, symphony restore check.';
    END IF;
    RETURN v_known;
END $$;
