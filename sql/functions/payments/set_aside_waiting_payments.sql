-- set_aside_waiting_payments: of these locked, due items, those that may not be leased now.
--
-- Moves    due -> waiting behind a head | due -> waiting for a paused participant
-- Caller   pick_due_payments; nobody else may
-- Locks    what an item waits for (head, blocked lane, paused participant), shared, tried and never waited for
-- Refuses  nothing
-- Why      fifty thousand items behind one blocked head must not be looked at again by every claim (284 ms
--          each, measured), so they leave the claimable index. An item is moved only while this
--          transaction holds what it waits for: then that cannot vanish meanwhile, and whoever removes it
--          afterwards finds the item and brings it back. If it cannot be held, the item stays where it is.
CREATE OR REPLACE FUNCTION symphony.set_aside_waiting_payments(p_outbox_ids UUID[]) RETURNS UUID[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = on SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_behind_ids   UUID[];
    v_behind_heads UUID[];
    v_blocked_ids  UUID[];
    v_paused_ids   UUID[];
    v_held         UUID[];
BEGIN
    WITH mine AS MATERIALIZED (
        SELECT q.outbox_id, q.participant_id, q.rail_type, q.lane_position, q.sequence_id
          FROM symphony.payment_outbox_pending q WHERE q.outbox_id = ANY (p_outbox_ids) AND q.lane_position > 0
    ), heads AS MATERIALIZED ( -- one look per lane, not per item: under a held snapshot it walks the lane's finished items
        SELECT l.participant_id, l.rail_type, first.outbox_id AS head_id
          FROM (SELECT DISTINCT m.participant_id, m.rail_type FROM mine m) l
         CROSS JOIN LATERAL (SELECT h.outbox_id FROM symphony.payment_outbox_pending h
                              WHERE h.participant_id = l.participant_id AND h.rail_type = l.rail_type AND h.lane_position > 0
                              ORDER BY h.lane_position LIMIT 1) first
    )
    SELECT array_agg(x.outbox_id), array_agg(x.head_id) INTO v_behind_ids, v_behind_heads
      FROM (SELECT p.outbox_id,
                   -- What stands before it; for a redriven item, which came into the lane later than those behind
                   -- it, also one of those that is in flight still.
                   CASE WHEN lane.head_id <> p.outbox_id THEN lane.head_id
                        WHEN p.lane_position <> p.sequence_id THEN
                            (SELECT h.outbox_id FROM symphony.payment_outbox_pending h
                              WHERE h.participant_id = p.participant_id AND h.rail_type = p.rail_type
                                AND h.lane_position > p.lane_position AND h.lease_token IS NOT NULL LIMIT 1)
                   END AS head_id
              FROM mine p JOIN heads lane ON lane.participant_id = p.participant_id AND lane.rail_type = p.rail_type) x
     WHERE x.head_id IS NOT NULL;
    IF v_behind_ids IS NOT NULL THEN
        SELECT array_agg(h.outbox_id) INTO v_held
          FROM (SELECT p.outbox_id FROM symphony.payment_outbox_pending p
                 WHERE p.outbox_id = ANY (v_behind_heads) FOR KEY SHARE SKIP LOCKED) h;
        -- Looked at again under the lock: it may have been skipped, or its lease have ended, meanwhile.
        UPDATE symphony.payment_outbox_pending p SET hold = 'BEHIND_HEAD'
          FROM unnest(v_behind_ids, v_behind_heads) t(outbox_id, head_id)
          JOIN symphony.payment_outbox_pending h ON h.outbox_id = t.head_id
         WHERE p.outbox_id = t.outbox_id AND p.hold IS NULL AND t.head_id = ANY (v_held)
           AND h.lane_position > 0 AND (h.lane_position < p.lane_position OR h.lease_token IS NOT NULL);
    END IF;

    SELECT array_agg(p.outbox_id) INTO v_blocked_ids
      FROM symphony.payment_outbox_pending p
      JOIN symphony.payment_outbox_blocked_lanes b ON b.participant_id = p.participant_id AND b.rail_type = p.rail_type
                                                     AND b.lane_position < p.lane_position
     WHERE p.outbox_id = ANY (p_outbox_ids) AND p.lane_position > 0 AND p.outbox_id <> ALL (coalesce(v_behind_ids, '{}'));
    IF v_blocked_ids IS NOT NULL THEN
        UPDATE symphony.payment_outbox_pending p SET hold = 'BEHIND_HEAD'
          FROM (SELECT b.participant_id, b.rail_type, b.lane_position FROM symphony.payment_outbox_blocked_lanes b
                 WHERE (b.participant_id, b.rail_type) IN (
                     SELECT q.participant_id, q.rail_type FROM symphony.payment_outbox_pending q
                      WHERE q.outbox_id = ANY (v_blocked_ids))
                   FOR KEY SHARE SKIP LOCKED) lane
         WHERE p.outbox_id = ANY (v_blocked_ids)
           AND p.hold IS NULL AND p.participant_id = lane.participant_id AND p.rail_type = lane.rail_type
           AND p.lane_position > lane.lane_position;
    END IF;

    SELECT array_agg(p.outbox_id) INTO v_paused_ids
      FROM symphony.payment_outbox_pending p
      JOIN symphony.payment_outbox_paused_participants s ON s.participant_id = p.participant_id
     WHERE p.outbox_id = ANY (p_outbox_ids)
       AND p.outbox_id <> ALL (coalesce(v_behind_ids, '{}') || coalesce(v_blocked_ids, '{}'));
    IF v_paused_ids IS NOT NULL THEN
        UPDATE symphony.payment_outbox_pending p SET hold = 'PARTICIPANT_PAUSED'
          FROM (SELECT s.participant_id FROM symphony.payment_outbox_paused_participants s
                 WHERE s.participant_id IN (SELECT q.participant_id FROM symphony.payment_outbox_pending q
                                             WHERE q.outbox_id = ANY (v_paused_ids))
                   FOR KEY SHARE SKIP LOCKED) paused
         WHERE p.outbox_id = ANY (v_paused_ids) AND p.hold IS NULL AND p.participant_id = paused.participant_id;
    END IF;

    RETURN coalesce(v_behind_ids, '{}') || coalesce(v_blocked_ids, '{}') || coalesce(v_paused_ids, '{}');
END $$;
