-- reschedule_trigger: an attempt is over and did not end the item; when to try again.
--
-- Moves    leased -> scheduled
-- Caller   complete_trigger_outbox_attempts, repair_trigger_outbox_leases; both have locked the row
-- Locks    nothing more
-- Refuses  nothing
-- Why      by the trigger's own list of pauses; the last is repeated. Where nobody was there to take it (p_away_no, the number of that
--          outcome) it is no attempt, and the pauses grow by themselves: the list may say 0.
CREATE OR REPLACE FUNCTION symphony.reschedule_trigger(p_item symphony.trigger_outbox_pending, p_away_no INT DEFAULT NULL)
RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    UPDATE symphony.trigger_outbox_pending p
       SET claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL,
           attempt_count = CASE WHEN p_away_no IS NULL THEN p.attempt_count + 1 ELSE p.attempt_count END,
           next_attempt_at = clock_timestamp() + make_interval(secs => CASE
               WHEN p_away_no IS NOT NULL THEN LEAST(300, symphony.backoff(p_away_no))
               ELSE coalesce(p.backoff_seconds[LEAST(p.attempt_count + 1, cardinality(p.backoff_seconds))], 0) END)
     WHERE p.id = p_item.id;
END $$;
