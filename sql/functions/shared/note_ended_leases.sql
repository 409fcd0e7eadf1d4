-- note_ended_leases: remember until the end of the transaction how many expired leases it has ended.
--
-- Moves    nothing
-- Caller   requeue_expired_payments, requeue_expired_events; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      a claim takes over what lost workers held and answers with what it leased: not with what it parked, nor with events
--          that wait. Whoever claims reads here what to count (symphony.leases_ended, symphony.leases_parked).
CREATE OR REPLACE FUNCTION symphony.note_ended_leases(p_ended BIGINT, p_parked BIGINT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config(n.name, (coalesce(NULLIF(current_setting(n.name, true), ''), '0')::BIGINT + n.more)::TEXT, true)
       FROM (VALUES ('symphony.leases_ended', p_ended), ('symphony.leases_parked', p_parked)) n(name, more)
      WHERE n.more > 0;
END $$;
