-- outbox_figures: every lane at a glance, as supervisor_outbox_status has it.
--
-- Moves    nothing
-- Caller   whoever may read that view
-- Locks    nothing
-- Refuses  42501 whoever may not read that view
-- Why      above a backlog the view's plan is dear enough for the server to compile it, which takes longer than to run it;
--          a view cannot say so, a function can. Not a definer: it gives nobody more than the view does.
CREATE OR REPLACE FUNCTION symphony.outbox_figures() RETURNS TABLE (
    lane TEXT, pending BIGINT, due_unleased_count BIGINT, leased_count BIGINT, expired_lease_count BIGINT, parked_count BIGINT,
    scheduled_count BIGINT, waiting_count BIGINT, oldest_pending_age_seconds BIGINT, dlq_count BIGINT, paused BOOLEAN,
    incident_count BIGINT, approval_waiting_count BIGINT, oldest_approval_age_seconds BIGINT,
    oldest_parked_age_seconds BIGINT, live_worker_count BIGINT, oldest_stopped_age_seconds BIGINT
) LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    RETURN QUERY
    SELECT s.lane, s.pending, s.due_unleased_count, s.leased_count, s.expired_lease_count, s.parked_count, s.scheduled_count,
           s.waiting_count, s.oldest_pending_age_seconds, s.dlq_count, s.paused, s.incident_count,
           s.approval_waiting_count, s.oldest_approval_age_seconds, s.oldest_parked_age_seconds, s.live_worker_count,
           s.oldest_stopped_age_seconds
      FROM symphony.supervisor_outbox_status s;
END $$;
