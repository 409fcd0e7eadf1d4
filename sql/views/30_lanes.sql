-- All lanes side by side.

-- What happened to items besides their outcomes, without the lease tokens: whoever reads may read it.
CREATE OR REPLACE VIEW public.outbox_history AS
SELECT 'payments'::TEXT AS lane, e.outbox_id AS item_id, e.event_no, e.event_type, e.worker_id, e.actor, e.approver, e.session_role,
       e.reason, e.details - ARRAY['lease_token', 'expired_token'] AS details, e.created_at
  FROM public.payment_outbox_events e
UNION ALL
SELECT 'events', e.outbox_event, e.event_no, e.event_type, e.worker_id, e.actor, e.approver, e.session_role, e.reason,
       e.details - ARRAY['lease_token', 'expired_token'], e.created_at
  FROM public.event_outbox_events e
UNION ALL
SELECT 'triggers', e.id, e.event_no, e.event_type, e.worker_id, e.actor, e.approver, e.session_role, e.reason,
       e.details - ARRAY['lease_token', 'expired_token'], e.created_at
  FROM public.trigger_outbox_events e;

-- Contradictions nobody has closed: a late outcome that says something else than the ledger. Derived from the late
-- outcomes, of which there are few, and not from a flag written with them: the ledger may get its outcome afterwards.
CREATE OR REPLACE VIEW public.outbox_incidents AS
SELECT 'payments'::TEXT AS lane, e.event_no AS incident_no, e.outbox_id AS item_id, e.created_at AS opened_at, e.worker_id,
       t.state AS recorded_state, t.rail_reference AS recorded_reference,
       e.details->>'state' AS late_state, e.details->>'rail_reference' AS late_reference
  FROM public.payment_outbox_events e
  JOIN public.payment_outbox_attempts t ON t.outbox_id = e.outbox_id AND t.state IN ('DISPATCHED', 'FAILED')
 WHERE e.event_type = 'LATE_OUTCOME'
   AND (e.details->>'state' IN ('DISPATCHED', 'FAILED') AND e.details->>'state' <> t.state::TEXT
        OR t.state = 'DISPATCHED' AND e.details->>'state' = 'DISPATCHED'
           AND t.rail_reference IS DISTINCT FROM e.details->>'rail_reference')
   AND NOT EXISTS (SELECT FROM public.payment_outbox_events c WHERE c.outbox_id = e.outbox_id AND c.event_type = 'INCIDENT_CLOSED'
                      AND (c.details->>'incident_no')::BIGINT = e.event_no)
UNION ALL
-- The bus has what the ledger calls FAILED. A redrive that was published settles it.
SELECT 'events', e.event_no, e.outbox_event, e.created_at, e.worker_id, t.state, t.bus_reference, e.details->>'state',
       e.details->>'bus_reference'
  FROM public.event_outbox_events e
  JOIN public.event_outbox_identities i ON i.event_id = e.outbox_event
 CROSS JOIN LATERAL (SELECT a.state, a.bus_reference FROM public.event_outbox_attempts a
                      WHERE a.bucket = i.bucket AND a.position = i.position AND a.outcome_no = 0
                      ORDER BY a.redrive_no DESC LIMIT 1) t
 WHERE e.event_type = 'LATE_OUTCOME' AND e.details->>'state' = 'DISPATCHED' AND t.state = 'FAILED'
   AND NOT EXISTS (SELECT FROM public.event_outbox_events c WHERE c.outbox_event = e.outbox_event AND c.event_type = 'INCIDENT_CLOSED'
                      AND (c.details->>'incident_no')::BIGINT = e.event_no)
UNION ALL
-- A mail or a call of a URL went out, and the ledger calls it FAILED. A script's effects are written with its outcome or
-- not at all, so there FAILED is true.
SELECT 'triggers', e.event_no, e.id, e.created_at, e.worker_id, t.state, NULL, e.details->>'state', NULL
  FROM public.trigger_outbox_events e
  JOIN public.trigger_outbox_attempts t ON t.id = e.id AND t.state = 'FAILED'
 WHERE e.event_type = 'LATE_OUTCOME' AND e.details->>'state' = 'DISPATCHED'
   AND (t.script_id IS NULL OR EXISTS (SELECT FROM public.scripts s WHERE s.id = t.script_id AND s.url IS NOT NULL))
   AND NOT EXISTS (SELECT FROM public.trigger_outbox_events c WHERE c.id = e.id AND c.event_type = 'INCIDENT_CLOSED'
                      AND (c.details->>'incident_no')::BIGINT = e.event_no);

-- One row per lane. Payments: one pass over the pending table, which is small and in memory. Events: what lies beyond
-- each cursor is counted in the log's index, so this costs as much as there is to publish. Triggers: as payments.
CREATE OR REPLACE VIEW public.supervisor_outbox_status AS
SELECT 'payments'::TEXT AS lane, counted.pending, counted.due_unleased_count, counted.leased_count,
       counted.expired_lease_count, counted.parked_count, counted.scheduled_count, counted.waiting_count,
       counted.oldest_pending_age_seconds,
       (SELECT count(*) FROM public.payment_outbox_dead_letters) AS dlq_count,
       s.paused,
       (SELECT count(*) FROM public.outbox_incidents i WHERE i.lane = 'payments') AS incident_count
  FROM (SELECT count(*) AS pending,
               count(*) FILTER (WHERE p.hold IS NULL AND p.lease_token IS NULL AND p.next_attempt_at <= clock.now) AS due_unleased_count,
               count(*) FILTER (WHERE p.lease_token IS NOT NULL AND p.lease_expires_at > clock.now) AS leased_count,
               count(*) FILTER (WHERE p.lease_token IS NOT NULL AND p.lease_expires_at <= clock.now) AS expired_lease_count,
               count(*) FILTER (WHERE p.hold = 'PARKED') AS parked_count,
               count(*) FILTER (WHERE p.hold IS NULL AND p.lease_token IS NULL AND p.next_attempt_at > clock.now) AS scheduled_count,
               count(*) FILTER (WHERE p.hold IN ('BEHIND_HEAD', 'PARTICIPANT_PAUSED')) AS waiting_count,
               coalesce(EXTRACT(EPOCH FROM max(clock.now) - min(p.created_at)), 0)::BIGINT AS oldest_pending_age_seconds
          FROM public.payment_outbox_pending p
         CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) clock) counted
 CROSS JOIN public.payment_outbox_settings s
UNION ALL
SELECT 'events', beyond.events + waiting.events AS pending,
       GREATEST(0, beyond.events + waiting.due - leased.events) AS due_unleased_count,
       leased.events, leased.expired, 0::BIGINT, waiting.scheduled, waiting.behind_failed,
       coalesce(EXTRACT(EPOCH FROM clock_timestamp() - LEAST(beyond.oldest, waiting.oldest)), 0)::BIGINT,
       (SELECT count(*) FROM public.event_outbox_dead_letters), s.paused,
       (SELECT count(*) FROM public.outbox_incidents i WHERE i.lane = 'events')
  FROM (SELECT coalesce(sum(n.events), 0)::BIGINT AS events, min(n.oldest) AS oldest
          FROM public.event_outbox_cursors c
         CROSS JOIN LATERAL (
             SELECT count(*) AS events,
                    (SELECT h.created_at FROM public.event_outbox_log h WHERE h.bucket = c.bucket AND h.position > c.published_through
                      ORDER BY h.position LIMIT 1) AS oldest
               FROM public.event_outbox_log l WHERE l.bucket = c.bucket AND l.position > c.published_through
                -- What is answered out of turn, or waits behind its key, is not counted here.
                AND NOT (l.position <= c.ragged_through
                         AND (EXISTS (SELECT FROM public.event_outbox_attempts a
                                       WHERE a.bucket = l.bucket AND a.position = l.position AND a.outcome_no = 0)
                              OR EXISTS (SELECT FROM public.event_outbox_waiting w
                                          WHERE w.bucket = l.bucket AND w.event_key = l.event_key AND w.position = l.position)))) n) beyond
 CROSS JOIN (SELECT coalesce(sum(c.unanswered) FILTER (WHERE c.lease_expires_at > clock_timestamp()), 0)::BIGINT AS events,
                    coalesce(sum(c.unanswered) FILTER (WHERE c.lease_expires_at <= clock_timestamp()), 0)::BIGINT AS expired
               FROM public.event_outbox_cursors c) leased
 CROSS JOIN (SELECT coalesce(sum(n.events), 0)::BIGINT AS events,
                    coalesce(sum(n.events) FILTER (WHERE k.due_at <= clock_timestamp()), 0)::BIGINT AS due,
                    coalesce(sum(n.events) FILTER (WHERE k.due_at > clock_timestamp() AND k.failed_position IS NULL), 0)::BIGINT AS scheduled,
                    coalesce(sum(n.events) FILTER (WHERE k.failed_position IS NOT NULL), 0)::BIGINT AS behind_failed,
                    min(n.oldest) AS oldest
               FROM public.event_outbox_blocked k
              CROSS JOIN LATERAL (
                  SELECT count(*) AS events,
                         (SELECT l.created_at FROM public.event_outbox_waiting h
                            JOIN public.event_outbox_log l ON l.bucket = h.bucket AND l.position = h.position
                           WHERE h.bucket = k.bucket AND h.event_key = k.event_key ORDER BY h.position LIMIT 1) AS oldest
                    FROM public.event_outbox_waiting w WHERE w.bucket = k.bucket AND w.event_key = k.event_key) n) waiting
 CROSS JOIN public.event_outbox_settings s
UNION ALL
SELECT 'triggers', counted.pending, counted.due, counted.leased, counted.expired, 0::BIGINT, counted.scheduled, waiting.messages,
       counted.oldest_age_seconds,
       (SELECT count(*) FROM public.trigger_outbox_dead_letters), s.paused,
       (SELECT count(*) FROM public.outbox_incidents i WHERE i.lane = 'triggers')
  FROM (SELECT count(*) AS pending,
               count(*) FILTER (WHERE p.lease_token IS NULL AND p.next_attempt_at <= clock.now) AS due,
               count(*) FILTER (WHERE p.lease_token IS NOT NULL AND p.lease_expires_at > clock.now) AS leased,
               count(*) FILTER (WHERE p.lease_token IS NOT NULL AND p.lease_expires_at <= clock.now) AS expired,
               count(*) FILTER (WHERE p.lease_token IS NULL AND p.next_attempt_at > clock.now) AS scheduled,
               coalesce(EXTRACT(EPOCH FROM max(clock.now) - min(p.created_at)), 0)::BIGINT AS oldest_age_seconds
          FROM public.trigger_outbox_pending p
         CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) clock) counted
 -- Messages whose queue has no consumer.
 CROSS JOIN (SELECT count(*) AS messages FROM public.queue_messages) waiting
 CROSS JOIN public.trigger_outbox_settings s;

-- Which lanes are paused, and nothing else: any role may ask which database it talks to.
CREATE OR REPLACE VIEW public.outbox_lane_states AS
SELECT 1 AS place, 'payments'::TEXT AS lane, paused FROM public.payment_outbox_settings
UNION ALL
SELECT 2, 'events', paused FROM public.event_outbox_settings
UNION ALL
SELECT 3, 'triggers', paused FROM public.trigger_outbox_settings;
