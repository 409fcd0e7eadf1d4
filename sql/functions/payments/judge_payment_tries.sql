-- judge_payment_tries: what is known and what is not about everything tried so far, before a person acts on it.
--
-- Moves    nothing
-- Caller   release_outbox, resolve_outbox, redrive_outbox; nobody else may
-- Locks    nothing
-- Refuses  P7009 a try was never answered by the rail and nobody said "despite", P7008 the rail has told a lost worker
--          that it was executed and nobody has approved; neither if p_only_tell
-- Why      sending again what may have moved pays twice, and the evidence is easily overlooked at night. A refusal by the
--          rail settles the tries before it, unless a person said RETRY in between: that was their word, not the
--          rail's. What an item is a redrive of counts as its own past.
CREATE OR REPLACE FUNCTION symphony.judge_payment_tries(
    p_outbox_id UUID, p_late_yes_needs_approval BOOLEAN, p_despite_unknown BOOLEAN, p_approver TEXT, p_only_tell BOOLEAN,
    OUT tries JSONB, OUT needs_despite_unknown BOOLEAN, OUT needs_approver BOOLEAN
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_unknown  INT;
    v_late_yes INT;
BEGIN
    WITH RECURSIVE line AS (
        SELECT i.outbox_id, i.redrive_of FROM symphony.payment_outbox_instructions i WHERE i.outbox_id = p_outbox_id
        UNION ALL
        SELECT i.outbox_id, i.redrive_of FROM line l JOIN symphony.payment_outbox_instructions i ON i.outbox_id = l.redrive_of
    ), told AS (
        SELECT a.completed_at AS at, a.outbox_id, 'TRY' AS what, a.attempt_no, a.worker_id AS by, a.state::TEXT AS outcome, a.rail_reference,
               a.rail_code, a.error_code, NULL::TEXT AS reason,
               (a.outcome_unknown OR a.state = 'ZOMBIE_REQUEUE')
               AND NOT (EXISTS (SELECT FROM symphony.payment_outbox_attempts t WHERE t.outbox_id = a.outbox_id
                                   AND t.state IN ('DISPATCHED', 'FAILED') AND t.lease_token IS NOT NULL)
                        AND NOT EXISTS (SELECT FROM symphony.payment_outbox_events r WHERE r.outbox_id = a.outbox_id
                                           AND r.event_type = 'RESOLVED' AND r.created_at >= a.completed_at)) AS unknown
          FROM line l JOIN symphony.payment_outbox_attempts a ON a.outbox_id = l.outbox_id
        UNION ALL
        SELECT e.created_at, e.outbox_id, e.event_type, NULL, coalesce(e.actor, e.worker_id),
               coalesce(e.details->>'state', e.details->>'resolution'), e.details->>'rail_reference', e.details->>'rail_code',
               e.details->>'error_code', e.reason, e.event_type = 'LATE_OUTCOME' AND e.details->>'state' = 'DISPATCHED'
          FROM line l JOIN symphony.payment_outbox_events e ON e.outbox_id = l.outbox_id
         WHERE e.event_type IN ('LATE_OUTCOME', 'TERMINAL_BLOCKED', 'INCIDENT_CLOSED')
            OR e.actor IS NOT NULL AND e.event_type IN ('PARKED', 'RELEASED', 'RESOLVED', 'REDRIVEN', 'SKIPPED')
        UNION ALL
        -- It is out, but the ledger has nothing of it: a failover or a restore has lost the try itself.
        SELECT clock_timestamp(), p.outbox_id, 'MUST_INQUIRE', NULL, NULL, NULL, NULL, NULL, NULL, 'the rail has to be asked first', true
          FROM symphony.payment_outbox_pending p WHERE p.outbox_id = p_outbox_id AND p.must_inquire
    )
    SELECT coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
               'at', t.at, 'outbox_id', t.outbox_id, 'what', t.what, 'attempt_no', t.attempt_no, 'by', t.by, 'outcome', t.outcome,
               'unknown', t.unknown, 'rail_reference', t.rail_reference, 'rail_code', t.rail_code, 'error_code', t.error_code,
               'reason', t.reason)) ORDER BY t.at), '[]'),
           count(*) FILTER (WHERE t.unknown), count(*) FILTER (WHERE t.unknown AND t.what = 'LATE_OUTCOME')
      INTO tries, v_unknown, v_late_yes FROM told t;
    needs_despite_unknown := v_unknown > 0;
    needs_approver := p_late_yes_needs_approval AND v_late_yes > 0;
    IF p_only_tell THEN
        RETURN;
    ELSIF needs_despite_unknown AND p_despite_unknown IS NOT TRUE THEN
        RAISE EXCEPTION 'p_despite_unknown is missing: the rail has never said what became of a try of item %, or of what it redrives: the money may have moved', p_outbox_id
            USING ERRCODE = 'P7009', HINT = 'A dry run lists every try. Ask the rail; if you act all the same, the reason must say how you know.';
    ELSIF needs_approver AND p_approver IS NULL THEN
        RAISE EXCEPTION 'a rail has told a lost worker that item % was executed: a second person must approve this, because it was not', p_outbox_id
            USING ERRCODE = 'P7008', HINT = 'symphony show lists the LATE_OUTCOME. If the money moved, resolve the item as DISPATCHED.';
    END IF;
END $$;
