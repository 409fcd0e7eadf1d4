-- All lanes side by side.

-- What happened to items besides their outcomes, without the lease tokens: whoever reads may read it. What a script threw may
-- repeat its payload, so a late outcome of a trigger is told without it; messages of rails and buses are ours.
CREATE OR REPLACE VIEW symphony.outbox_history AS
SELECT 'payments'::TEXT AS lane, e.outbox_id AS item_id, e.event_no, e.event_type, e.worker_id, e.actor, e.approver, e.session_role,
       e.reason, e.details - ARRAY['lease_token', 'expired_token'] AS details, e.created_at
  FROM symphony.payment_outbox_events e
UNION ALL
SELECT 'events', e.outbox_event, e.event_no, e.event_type, e.worker_id, e.actor, e.approver, e.session_role, e.reason,
       e.details - ARRAY['lease_token', 'expired_token'], e.created_at
  FROM symphony.event_outbox_events e
UNION ALL
SELECT 'triggers', e.id, e.event_no, e.event_type, e.worker_id, e.actor, e.approver, e.session_role, e.reason,
       e.details - ARRAY['lease_token', 'expired_token', 'error_message'], e.created_at
  FROM symphony.trigger_outbox_events e;

-- Contradictions nobody has closed: a late outcome that says something else than the ledger. Derived from the late
-- outcomes, of which there are few, and not from a flag written with them: the ledger may get its outcome afterwards.
CREATE OR REPLACE VIEW symphony.outbox_incidents AS
SELECT 'payments'::TEXT AS lane, e.event_no AS incident_no, e.outbox_id AS item_id, e.created_at AS opened_at, e.worker_id,
       t.state AS recorded_state, t.rail_reference AS recorded_reference,
       e.details->>'state' AS late_state, e.details->>'rail_reference' AS late_reference
  FROM symphony.payment_outbox_events e
  JOIN symphony.payment_outbox_attempts t ON t.outbox_id = e.outbox_id AND t.state IN ('DISPATCHED', 'FAILED')
 WHERE e.event_type = 'LATE_OUTCOME'
   AND (e.details->>'state' IN ('DISPATCHED', 'FAILED') AND e.details->>'state' <> t.state::TEXT
        OR t.state = 'DISPATCHED' AND e.details->>'state' = 'DISPATCHED'
           AND t.rail_reference IS DISTINCT FROM e.details->>'rail_reference')
   AND NOT EXISTS (SELECT FROM symphony.payment_outbox_events c WHERE c.outbox_id = e.outbox_id AND c.event_type = 'INCIDENT_CLOSED'
                      AND (c.details->>'incident_no')::BIGINT = e.event_no)
UNION ALL
-- The bus has what the ledger calls FAILED. A redrive that was published settles it.
SELECT 'events', e.event_no, e.outbox_event, e.created_at, e.worker_id, t.state, t.bus_reference, e.details->>'state',
       e.details->>'bus_reference'
  FROM symphony.event_outbox_events e
  JOIN symphony.event_outbox_identities i ON i.event_id = e.outbox_event
 CROSS JOIN LATERAL (SELECT a.state, a.bus_reference FROM symphony.event_outbox_attempts a
                      WHERE a.bucket = i.bucket AND a.position = i.position AND a.outcome_no = 0
                      ORDER BY a.redrive_no DESC LIMIT 1) t
 WHERE e.event_type = 'LATE_OUTCOME' AND e.details->>'state' = 'DISPATCHED' AND t.state = 'FAILED'
   AND NOT EXISTS (SELECT FROM symphony.event_outbox_events c WHERE c.outbox_event = e.outbox_event AND c.event_type = 'INCIDENT_CLOSED'
                      AND (c.details->>'incident_no')::BIGINT = e.event_no)
UNION ALL
-- A mail or a call of a URL went out, and the ledger calls it FAILED. A script's effects are written with its outcome or
-- not at all, so there FAILED is true.
SELECT 'triggers', e.event_no, e.id, e.created_at, e.worker_id, t.state, NULL, e.details->>'state', NULL
  FROM symphony.trigger_outbox_events e
  JOIN symphony.trigger_outbox_attempts t ON t.id = e.id AND t.state = 'FAILED'
 WHERE e.event_type = 'LATE_OUTCOME' AND e.details->>'state' = 'DISPATCHED'
   AND (t.script_id IS NULL OR EXISTS (SELECT FROM symphony.scripts s WHERE s.id = t.script_id AND s.url IS NOT NULL))
   AND NOT EXISTS (SELECT FROM symphony.trigger_outbox_events c WHERE c.id = e.id AND c.event_type = 'INCIDENT_CLOSED'
                      AND (c.details->>'incident_no')::BIGINT = e.event_no);

-- One row per lane. Payments: one pass over the pending table, which is small and in memory. Events: what lies beyond
-- each cursor is counted in the log's index, so this costs as much as there is to publish. Triggers: as payments. The oldest
-- pending age leaves out what waits for a person, who knows of it: what is parked and what a person has stopped (a pause; the
-- parked head of a FIFO lane), each with an age of its own. A worker lives if it spoke within twenty seconds.
CREATE OR REPLACE VIEW symphony.supervisor_outbox_status AS
SELECT 'payments'::TEXT AS lane, counted.pending, counted.due_unleased_count, counted.leased_count,
       counted.expired_lease_count, counted.parked_count, counted.scheduled_count, counted.waiting_count,
       counted.oldest_pending_age_seconds,
       (SELECT count(*) FROM symphony.payment_outbox_dead_letters) AS dlq_count,
       s.paused,
       (SELECT count(*) FROM symphony.outbox_incidents i WHERE i.lane = 'payments') AS incident_count,
       coalesce((SELECT w.requests FROM symphony.outbox_waiting_approvals w WHERE w.lane = 'payments'), 0) AS approval_waiting_count,
       coalesce((SELECT w.oldest_age_seconds FROM symphony.outbox_waiting_approvals w WHERE w.lane = 'payments'), 0) AS oldest_approval_age_seconds,
       counted.oldest_parked_age_seconds,
       (SELECT count(DISTINCT d.worker_id) FROM symphony.outbox_destinations d
         WHERE d.lane = 'payments' AND d.reported_at > clock_timestamp() - INTERVAL '20 seconds') AS live_worker_count,
       counted.oldest_stopped_age_seconds
  FROM (SELECT count(*) AS pending,
               count(*) FILTER (WHERE p.hold IS NULL AND p.lease_token IS NULL AND p.next_attempt_at <= clock.now) AS due_unleased_count,
               count(*) FILTER (WHERE p.lease_token IS NOT NULL AND p.lease_expires_at > clock.now) AS leased_count,
               count(*) FILTER (WHERE p.lease_token IS NOT NULL AND p.lease_expires_at <= clock.now) AS expired_lease_count,
               count(*) FILTER (WHERE p.hold = 'PARKED') AS parked_count,
               count(*) FILTER (WHERE p.hold IS NULL AND p.lease_token IS NULL AND p.next_attempt_at > clock.now) AS scheduled_count,
               count(*) FILTER (WHERE p.hold IN ('BEHIND_HEAD', 'PARTICIPANT_PAUSED')) AS waiting_count,
               coalesce(EXTRACT(EPOCH FROM max(clock.now) - min(p.created_at)
                                           FILTER (WHERE p.hold IS DISTINCT FROM 'PARKED' AND NOT p.stopped)), 0)::BIGINT
                   AS oldest_pending_age_seconds,
               coalesce(EXTRACT(EPOCH FROM max(clock.now) - min(p.created_at) FILTER (WHERE p.hold = 'PARKED')), 0)::BIGINT
                   AS oldest_parked_age_seconds,
               coalesce(EXTRACT(EPOCH FROM max(clock.now) - min(p.created_at)
                                           FILTER (WHERE p.hold IS DISTINCT FROM 'PARKED' AND p.stopped)), 0)::BIGINT
                   AS oldest_stopped_age_seconds
          FROM (SELECT q.hold, q.lease_token, q.next_attempt_at, q.lease_expires_at, q.created_at,
                       (paused.lane OR q.rail_type = ANY (paused.rails) OR q.hold = 'PARTICIPANT_PAUSED'
                        OR q.hold = 'BEHIND_HEAD' AND (q.participant_id, q.rail_type) IN (
                               SELECT h.participant_id, h.rail_type FROM symphony.payment_outbox_pending h
                                WHERE h.hold = 'PARKED' AND h.lane_position > 0)) IS TRUE AS stopped
                  FROM symphony.payment_outbox_pending q
                 CROSS JOIN (SELECT l.paused AS lane,
                                    ARRAY(SELECT r.rail_type FROM symphony.payment_outbox_rails r WHERE r.paused) AS rails
                               FROM symphony.payment_outbox_settings l OFFSET 0) paused) p
         CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) clock) counted
 CROSS JOIN symphony.payment_outbox_settings s
UNION ALL
SELECT 'events', beyond.events + waiting.events AS pending,
       GREATEST(0, beyond.events + waiting.due - leased.events) AS due_unleased_count,
       leased.events, leased.expired, 0::BIGINT, waiting.scheduled, waiting.for_a_person,
       coalesce(EXTRACT(EPOCH FROM clock_timestamp()
                                   - CASE WHEN NOT s.paused THEN LEAST(beyond.oldest, waiting.oldest) END), 0)::BIGINT,
       (SELECT count(*) FROM symphony.event_outbox_dead_letters), s.paused,
       (SELECT count(*) FROM symphony.outbox_incidents i WHERE i.lane = 'events'),
       coalesce((SELECT w.requests FROM symphony.outbox_waiting_approvals w WHERE w.lane = 'events'), 0),
       coalesce((SELECT w.oldest_age_seconds FROM symphony.outbox_waiting_approvals w WHERE w.lane = 'events'), 0),
       0::BIGINT,
       (SELECT count(DISTINCT d.worker_id) FROM symphony.outbox_destinations d
         WHERE d.lane = 'events' AND d.reported_at > clock_timestamp() - INTERVAL '20 seconds'),
       coalesce(EXTRACT(EPOCH FROM clock_timestamp()
                                   - CASE WHEN s.paused THEN LEAST(beyond.oldest, waiting.oldest, waiting.oldest_stopped)
                                          ELSE waiting.oldest_stopped END), 0)::BIGINT
  FROM (SELECT coalesce(sum(n.events), 0)::BIGINT AS events, min(n.oldest) AS oldest
          FROM symphony.event_outbox_cursors c
         CROSS JOIN LATERAL (
             -- Two counts and not one with a condition: this one is answered by the index alone, 40 times as fast.
             SELECT (SELECT count(*) FROM symphony.event_outbox_log l WHERE l.bucket = c.bucket AND l.position > c.published_through)
                    -- What is answered out of turn, or waits behind its key, is not counted here.
                    - (SELECT count(*) FROM symphony.event_outbox_log l
                        WHERE l.bucket = c.bucket AND l.position > c.published_through AND l.position <= c.ragged_through
                          AND (EXISTS (SELECT FROM symphony.event_outbox_attempts a
                                        WHERE a.bucket = l.bucket AND a.position = l.position AND a.outcome_no = 0)
                               OR EXISTS (SELECT FROM symphony.event_outbox_waiting w
                                           WHERE w.bucket = l.bucket AND w.event_key = l.event_key AND w.position = l.position))) AS events,
                    (SELECT h.created_at FROM symphony.event_outbox_log h WHERE h.bucket = c.bucket AND h.position > c.published_through
                      ORDER BY h.position LIMIT 1) AS oldest) n) beyond
 CROSS JOIN (SELECT coalesce(sum(c.unanswered) FILTER (WHERE c.lease_expires_at > clock_timestamp()), 0)::BIGINT AS events,
                    coalesce(sum(c.unanswered) FILTER (WHERE c.lease_expires_at <= clock_timestamp()), 0)::BIGINT AS expired
               FROM symphony.event_outbox_cursors c) leased
 CROSS JOIN (SELECT coalesce(sum(n.events), 0)::BIGINT AS events,
                    coalesce(sum(n.events) FILTER (WHERE k.due_at <= clock_timestamp()), 0)::BIGINT AS due,
                    coalesce(sum(n.events) FILTER (WHERE k.due_at > clock_timestamp() AND k.failed_position IS NULL
                                                     AND k.paused_topic IS NULL), 0)::BIGINT AS scheduled,
                    coalesce(sum(n.events) FILTER (WHERE k.due_at > clock_timestamp()
                                                     AND (k.failed_position IS NOT NULL OR k.paused_topic IS NOT NULL)), 0)::BIGINT AS for_a_person,
                    min(n.oldest) FILTER (WHERE k.paused_topic IS NULL) AS oldest,
                    min(n.oldest) FILTER (WHERE k.paused_topic IS NOT NULL) AS oldest_stopped
               FROM symphony.event_outbox_blocked k
              CROSS JOIN LATERAL (
                  SELECT count(*) AS events,
                         (SELECT l.created_at FROM symphony.event_outbox_waiting h
                            JOIN symphony.event_outbox_log l ON l.bucket = h.bucket AND l.position = h.position
                           WHERE h.bucket = k.bucket AND h.event_key = k.event_key ORDER BY h.position LIMIT 1) AS oldest
                    FROM symphony.event_outbox_waiting w WHERE w.bucket = k.bucket AND w.event_key = k.event_key) n) waiting
 CROSS JOIN symphony.event_outbox_settings s
UNION ALL
SELECT 'triggers', counted.pending, counted.due, counted.leased, counted.expired, 0::BIGINT, counted.scheduled, waiting.messages,
       counted.oldest_age_seconds,
       (SELECT count(*) FROM symphony.trigger_outbox_dead_letters), s.paused,
       (SELECT count(*) FROM symphony.outbox_incidents i WHERE i.lane = 'triggers'),
       coalesce((SELECT w.requests FROM symphony.outbox_waiting_approvals w WHERE w.lane = 'triggers'), 0),
       coalesce((SELECT w.oldest_age_seconds FROM symphony.outbox_waiting_approvals w WHERE w.lane = 'triggers'), 0),
       0::BIGINT,
       (SELECT count(DISTINCT d.worker_id) FROM symphony.outbox_destinations d
         WHERE d.lane = 'triggers' AND d.reported_at > clock_timestamp() - INTERVAL '20 seconds'),
       counted.oldest_stopped_age_seconds
  FROM (SELECT count(*) AS pending,
               count(*) FILTER (WHERE p.lease_token IS NULL AND p.next_attempt_at <= clock.now) AS due,
               count(*) FILTER (WHERE p.lease_token IS NOT NULL AND p.lease_expires_at > clock.now) AS leased,
               count(*) FILTER (WHERE p.lease_token IS NOT NULL AND p.lease_expires_at <= clock.now) AS expired,
               count(*) FILTER (WHERE p.lease_token IS NULL AND p.next_attempt_at > clock.now) AS scheduled,
               coalesce(EXTRACT(EPOCH FROM max(clock.now) - min(p.created_at) FILTER (WHERE NOT p.stopped)), 0)::BIGINT
                   AS oldest_age_seconds,
               coalesce(EXTRACT(EPOCH FROM max(clock.now) - min(p.created_at) FILTER (WHERE p.stopped)), 0)::BIGINT
                   AS oldest_stopped_age_seconds
          FROM (SELECT q.lease_token, q.next_attempt_at, q.lease_expires_at, q.created_at,
                       (paused.lane OR q.app_id = ANY (paused.apps)) IS TRUE AS stopped
                  FROM symphony.trigger_outbox_pending q
                 CROSS JOIN (SELECT l.paused AS lane, ARRAY(SELECT a.id FROM symphony.apps a WHERE a.paused) AS apps
                               FROM symphony.trigger_outbox_settings l OFFSET 0) paused) p
         CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) clock) counted
 -- Messages whose queue has no consumer.
 CROSS JOIN (SELECT count(*) AS messages FROM symphony.queue_messages) waiting
 CROSS JOIN symphony.trigger_outbox_settings s;

-- Which lanes are paused, and nothing else: any role may ask which database it talks to.
CREATE OR REPLACE VIEW symphony.outbox_lane_states AS
SELECT 1 AS place, 'payments'::TEXT AS lane, paused FROM symphony.payment_outbox_settings
UNION ALL
SELECT 2, 'events', paused FROM symphony.event_outbox_settings
UNION ALL
SELECT 3, 'triggers', paused FROM symphony.trigger_outbox_settings;
