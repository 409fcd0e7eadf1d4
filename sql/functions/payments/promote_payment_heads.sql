-- promote_payment_heads: let the first item of each of these FIFO lanes be claimed.
--
-- Moves    waiting behind a head -> due at once
-- Caller   whatever ends a lease, takes an item out of its lane or unblocks the lane; nobody else may
-- Locks    the new heads' pending rows
-- Refuses  nothing
-- Why      an item is set aside only while something stands before it, and whoever takes that away calls
--          this afterwards, in a later statement, whose snapshot sees what was set aside meanwhile. Due
--          "now" and not when it was first due, so that a claim with a watermark meets it.
CREATE OR REPLACE FUNCTION symphony.promote_payment_heads(p_participant_ids TEXT[], p_rail_types TEXT[]) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    UPDATE symphony.payment_outbox_pending p
       SET hold = NULL, next_attempt_at = GREATEST(p.next_attempt_at, clock_timestamp())
     WHERE p.hold = 'BEHIND_HEAD'
       AND p.outbox_id = ANY (ARRAY(
           SELECT head.outbox_id
             FROM (SELECT DISTINCT t.participant_id, t.rail_type
                     FROM unnest(p_participant_ids, p_rail_types) t(participant_id, rail_type)) lane
            CROSS JOIN LATERAL (
                SELECT h.outbox_id, h.hold, h.lane_position FROM symphony.payment_outbox_pending h
                 WHERE h.participant_id = lane.participant_id AND h.rail_type = lane.rail_type AND h.lane_position > 0
                 ORDER BY h.lane_position LIMIT 1) head
            WHERE head.hold = 'BEHIND_HEAD'
              AND NOT EXISTS (SELECT FROM symphony.payment_outbox_blocked_lanes b
                               WHERE b.participant_id = lane.participant_id AND b.rail_type = lane.rail_type
                                 AND b.lane_position < head.lane_position)));
END $$;
