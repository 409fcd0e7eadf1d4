-- free_event_buckets: end leases that still cover something.
--
-- Moves    bucket: leased -> free; the cursor over the contiguous prefix of answered positions
-- Caller   return and repair functions; nobody else may
-- Locks    nothing new: the caller holds the cursors
-- Refuses  nothing
-- Why      what was answered beyond the prefix stays answered: the next claim finds it between the cursor and
--          ragged_through and does not hand it out again.
CREATE OR REPLACE FUNCTION symphony.free_event_buckets(p_buckets SMALLINT[]) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    PERFORM symphony.advance_event_cursors(p_buckets, p_buckets);
    UPDATE symphony.event_outbox_waiting w SET lease_token = NULL
     WHERE w.bucket = ANY (p_buckets) AND w.lease_token IS NOT NULL;
    UPDATE symphony.event_outbox_cursors c
       SET claimed_through = GREATEST(c.published_through, c.ragged_through), unanswered = 0,
           claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL
     WHERE c.bucket = ANY (p_buckets) AND c.lease_token IS NOT NULL;
END $$;
