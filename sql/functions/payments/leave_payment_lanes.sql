-- leave_payment_lanes: these FIFO heads have ended; block their lanes or let the next item forward.
--
-- Moves    lanes: running -> blocked (a FAILED head where the rail says so) | next item -> due at once
-- Caller   whatever writes a terminal outcome; nobody else may
-- Locks    the blocked lane's row, the new heads' pending rows
-- Refuses  nothing
-- Why      order means that a payment never overtakes one before it that failed, until a person has said
--          whether the failed one is to be tried again in its place or passed over.
CREATE OR REPLACE FUNCTION symphony.leave_payment_lanes(
    p_outbox_ids UUID[], p_participant_ids TEXT[], p_rail_types TEXT[], p_lane_positions BIGINT[], p_failed BOOLEAN[]
) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    INSERT INTO symphony.payment_outbox_blocked_lanes (participant_id, rail_type, outbox_id, lane_position)
    SELECT t.participant_id, t.rail_type, t.outbox_id, t.lane_position
      FROM unnest(p_outbox_ids, p_participant_ids, p_rail_types, p_lane_positions, p_failed)
           t(outbox_id, participant_id, rail_type, lane_position, failed)
      JOIN symphony.payment_outbox_rails r ON r.rail_type = t.rail_type
     WHERE t.failed AND r.on_failed = 'block'
     ORDER BY t.participant_id, t.rail_type;
    PERFORM symphony.promote_payment_heads(p_participant_ids, p_rail_types);
END $$;
