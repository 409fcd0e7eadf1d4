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
CREATE OR REPLACE FUNCTION public.set_aside_waiting_payments(p_outbox_ids UUID[]) RETURNS UUID[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_behind_ids   UUID[];
    v_behind_heads UUID[];
    v_blocked_ids  UUID[];
    v_paused_ids   UUID[];
    v_held         UUID[];
BEGIN
    SELECT array_agg(x.outbox_id), array_agg(x.head_id) INTO v_behind_ids, v_behind_heads
      FROM (SELECT p.outbox_id,
                   (SELECT h.outbox_id FROM public.payment_outbox_pending h
                     WHERE h.participant_id = p.participant_id AND h.rail_type = p.rail_type AND h.lane_position > 0
                     ORDER BY h.lane_position LIMIT 1) AS head_id
              FROM public.payment_outbox_pending p
             WHERE p.outbox_id = ANY (p_outbox_ids) AND p.lane_position > 0) x
     WHERE x.head_id <> x.outbox_id;
    IF v_behind_ids IS NOT NULL THEN
        SELECT array_agg(h.outbox_id) INTO v_held
          FROM (SELECT p.outbox_id FROM public.payment_outbox_pending p
                 WHERE p.outbox_id = ANY (v_behind_heads) FOR KEY SHARE SKIP LOCKED) h;
        UPDATE public.payment_outbox_pending p SET hold = 'BEHIND_HEAD'
         WHERE p.outbox_id = ANY (ARRAY(
             SELECT t.outbox_id FROM unnest(v_behind_ids, v_behind_heads) t(outbox_id, head_id)
              WHERE t.head_id = ANY (v_held)));
    END IF;

    SELECT array_agg(p.outbox_id) INTO v_blocked_ids
      FROM public.payment_outbox_pending p
      JOIN public.payment_outbox_blocked_lanes b ON b.participant_id = p.participant_id AND b.rail_type = p.rail_type
     WHERE p.outbox_id = ANY (p_outbox_ids) AND p.lane_position > 0 AND p.outbox_id <> ALL (coalesce(v_behind_ids, '{}'));
    IF v_blocked_ids IS NOT NULL THEN
        UPDATE public.payment_outbox_pending p SET hold = 'BEHIND_HEAD'
          FROM (SELECT b.participant_id, b.rail_type FROM public.payment_outbox_blocked_lanes b
                 WHERE (b.participant_id, b.rail_type) IN (
                     SELECT q.participant_id, q.rail_type FROM public.payment_outbox_pending q
                      WHERE q.outbox_id = ANY (v_blocked_ids))
                   FOR KEY SHARE SKIP LOCKED) lane
         WHERE p.outbox_id = ANY (v_blocked_ids)
           AND p.participant_id = lane.participant_id AND p.rail_type = lane.rail_type;
    END IF;

    SELECT array_agg(p.outbox_id) INTO v_paused_ids
      FROM public.payment_outbox_pending p
      JOIN public.payment_outbox_paused_participants s ON s.participant_id = p.participant_id
     WHERE p.outbox_id = ANY (p_outbox_ids)
       AND p.outbox_id <> ALL (coalesce(v_behind_ids, '{}') || coalesce(v_blocked_ids, '{}'));
    IF v_paused_ids IS NOT NULL THEN
        UPDATE public.payment_outbox_pending p SET hold = 'PARTICIPANT_PAUSED'
          FROM (SELECT s.participant_id FROM public.payment_outbox_paused_participants s
                 WHERE s.participant_id IN (SELECT q.participant_id FROM public.payment_outbox_pending q
                                             WHERE q.outbox_id = ANY (v_paused_ids))
                   FOR KEY SHARE SKIP LOCKED) paused
         WHERE p.outbox_id = ANY (v_paused_ids) AND p.participant_id = paused.participant_id;
    END IF;

    RETURN coalesce(v_behind_ids, '{}') || coalesce(v_blocked_ids, '{}') || coalesce(v_paused_ids, '{}');
END $$;
