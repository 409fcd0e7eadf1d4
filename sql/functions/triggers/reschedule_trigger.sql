-- reschedule_trigger: an attempt is over and did not end the item; when to try again.
--
-- Moves    leased -> scheduled
-- Caller   complete_trigger_outbox_attempts, repair_trigger_outbox_leases; both have locked the row
-- Locks    nothing more
-- Refuses  nothing
-- Why      by the trigger's own list of pauses; the last is repeated.
CREATE OR REPLACE FUNCTION symphony_internal.reschedule_trigger(p_item public.trigger_outbox_pending) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    UPDATE public.trigger_outbox_pending p
       SET claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL, attempt_count = p.attempt_count + 1,
           next_attempt_at = clock_timestamp() + make_interval(secs => coalesce(
               p.backoff_seconds[LEAST(p.attempt_count + 1, cardinality(p.backoff_seconds))], 0))
     WHERE p.id = p_item.id;
END $$;
