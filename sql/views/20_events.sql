-- What producers, operators and metrics read of the event lane. Derived, never stored.

-- The outbox in the producer's words, one row per event. Its payload is the whole of what the producer gave: envelope, key
-- and payload. next_attempt is NULL where no time is known: behind its key's head, or until a person acts. Never infinity,
-- which drivers of some languages cannot read.
CREATE OR REPLACE VIEW symphony.event_outbox AS
SELECT l.event_id AS id, l.event->'envelope'->>'type' AS "eventType", l.event AS payload,
       CASE WHEN w.position IS NOT NULL THEN 'PENDING'
            ELSE coalesce(CASE ended.state WHEN 'DISPATCHED' THEN 'SENT' WHEN 'FAILED' THEN 'FAILED' END, 'PENDING') END AS state,
       coalesce(tries.attempts, 0) AS attempts, tries.last_error AS "lastError",
       CASE WHEN w.position IS NULL AND ended.state IS NULL THEN l.created_at
            WHEN k.failed_position IS NULL AND k.paused_topic IS NULL
             AND NOT EXISTS (SELECT FROM symphony.event_outbox_waiting h
                              WHERE h.bucket = w.bucket AND h.event_key = w.event_key AND h.position < w.position)
            THEN k.due_at END AS next_attempt,
       l.created_at AS "createdAt", coalesce(tries.last_at, l.created_at) AS "updatedAt",
       l.event_key, l.bucket, l.position AS log_position, l.event
  FROM symphony.event_outbox_log l
  LEFT JOIN symphony.event_outbox_waiting w ON w.bucket = l.bucket AND w.event_key = l.event_key AND w.position = l.position
  LEFT JOIN symphony.event_outbox_blocked k ON k.bucket = w.bucket AND k.event_key = w.event_key
  LEFT JOIN LATERAL (SELECT a.state FROM symphony.event_outbox_attempts a
                      WHERE a.bucket = l.bucket AND a.position = l.position AND a.outcome_no = 0
                      ORDER BY a.redrive_no DESC LIMIT 1) ended ON true
  LEFT JOIN LATERAL (SELECT count(*)::INT AS attempts, max(a.completed_at) AS last_at,
                            (array_agg(a.error_message ORDER BY a.redrive_no DESC, a.attempt_no DESC))[1] AS last_error
                       FROM symphony.event_outbox_attempts a WHERE a.bucket = l.bucket AND a.position = l.position) tries ON true;

-- What is on the envelope, for whoever may not see what is in it.
CREATE OR REPLACE VIEW symphony.event_outbox_envelopes AS
SELECT l.bucket, l.position, l.event_id, l.event_key, e.envelope->>'type' AS event_type, e.envelope->>'tenantId' AS tenant_id,
       l.created_at
  FROM symphony.event_outbox_log l
 CROSS JOIN LATERAL (SELECT l.event->'envelope' AS envelope) e;

-- Events that ended FAILED and that nobody has redriven or closed since.
CREATE OR REPLACE VIEW symphony.event_outbox_dead_letters AS
SELECT a.event_id, a.event_key, a.bucket, a.position AS log_position, a.redrive_no, a.attempt_no, a.completed_at AS failed_at,
       a.destination, a.error_code, a.error_message, key.blocks_its_key
  FROM symphony.event_outbox_attempts a
 CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM symphony.event_outbox_blocked k
                                     WHERE k.bucket = a.bucket AND k.event_key = a.event_key
                                       AND k.failed_position = a.position) AS blocks_its_key) key
 WHERE a.state = 'FAILED'
   AND NOT EXISTS (SELECT FROM symphony.event_outbox_attempts later
                    WHERE later.bucket = a.bucket AND later.position = a.position AND later.redrive_no > a.redrive_no)
   AND NOT EXISTS (SELECT FROM symphony.event_outbox_waiting w
                    WHERE w.bucket = a.bucket AND w.event_key = a.event_key AND w.position = a.position)
   AND NOT EXISTS (SELECT FROM symphony.event_outbox_events c WHERE c.outbox_event = a.event_id AND c.event_type = 'DEAD_LETTER_CLOSED'
                      AND (c.details->>'redrive_no')::INT >= a.redrive_no);
