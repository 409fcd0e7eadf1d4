-- event_state: what has become of an event, in the producer's words.
--
-- Moves    nothing
-- Caller   enqueue functions, acts, the view event_outbox
-- Locks    nothing
-- Refuses  nothing: NULL for an event nobody enqueued
-- Why      one place says what PENDING, SENT and FAILED mean; a redriven event is PENDING again.
CREATE OR REPLACE FUNCTION symphony.event_state(p_event_id UUID) RETURNS TEXT
LANGUAGE sql STABLE
RETURN (
    SELECT CASE WHEN EXISTS (SELECT FROM symphony.event_outbox_waiting w JOIN symphony.event_outbox_log l
                                ON l.bucket = w.bucket AND l.position = w.position AND l.event_key = w.event_key
                              WHERE l.bucket = i.bucket AND l.position = i.position) THEN 'PENDING'
                ELSE coalesce((SELECT CASE a.state WHEN 'DISPATCHED' THEN 'SENT' ELSE 'FAILED' END
                                 FROM symphony.event_outbox_attempts a
                                WHERE a.bucket = i.bucket AND a.position = i.position AND a.outcome_no = 0
                                ORDER BY a.redrive_no DESC LIMIT 1), 'PENDING') END
      FROM symphony.event_outbox_identities i WHERE i.event_id = p_event_id);
