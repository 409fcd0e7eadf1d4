-- payment_tried_since: when the tries of an item began, or began again.
--
-- Moves    nothing
-- Caller   settle_payment_attempts; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      an item is given up by how long it has been tried, not by how old it is: one that waited for days behind a pause
--          must not fail at its first try. A person's release starts it anew. p_claimed_at is this try's, if it is the first.
CREATE OR REPLACE FUNCTION symphony.payment_tried_since(p_outbox_id UUID, p_claimed_at TIMESTAMPTZ) RETURNS TIMESTAMPTZ
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        (SELECT coalesce(a.claimed_at, a.completed_at) FROM symphony.payment_outbox_attempts a
          WHERE a.outbox_id = p_outbox_id
            AND a.completed_at > coalesce((SELECT max(e.created_at) FROM symphony.payment_outbox_events e
                                            WHERE e.outbox_id = p_outbox_id AND e.event_type IN ('RELEASED', 'RESOLVED')), '-infinity')
          ORDER BY a.attempt_no LIMIT 1),
        p_claimed_at)
$$;
