-- What operators and metrics read of the payment lane. Derived, never stored: a view cannot disagree with
-- the tables. Each has two or more relations in FROM: of one alone, servers before and after 16 print another text,
-- and `symphony doctor` compares that text.

-- One row per live item, with its latest attempt. Looks an item up by key; never scans the ledger.
CREATE OR REPLACE VIEW symphony.outbox_operational_status AS
SELECT 'payments'::TEXT AS lane, p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key,
       p.rail_type,
       CASE WHEN p.hold = 'PARKED' THEN 'PARKED'
            WHEN p.hold = 'BEHIND_HEAD' THEN 'WAITING'
            WHEN p.hold = 'PARTICIPANT_PAUSED' THEN 'PAUSED'
            WHEN p.lease_token IS NOT NULL AND p.lease_expires_at > clock_timestamp() THEN 'IN_FLIGHT'
            WHEN p.lease_token IS NOT NULL THEN 'LEASE_EXPIRED'
            WHEN p.next_attempt_at <= clock_timestamp() THEN 'DUE'
            ELSE 'SCHEDULED' END AS state,
       p.attempt_count, p.must_inquire, p.next_attempt_at, p.created_at, p.claimed_by, p.claimed_at, p.lease_expires_at,
       p.lane_position,
       latest.attempt_no AS last_attempt_no, latest.state AS last_attempt_state, latest.completed_at AS last_attempt_at,
       latest.rail_code AS last_rail_code, latest.error_code AS last_error_code, latest.error_message AS last_error_message
  FROM symphony.payment_outbox_pending p
  LEFT JOIN LATERAL (SELECT a.* FROM symphony.payment_outbox_attempts a
                      WHERE a.outbox_id = p.outbox_id ORDER BY a.attempt_no DESC LIMIT 1) latest ON true;

-- What each worker holds. Quick for one worker: its own claims on record bound the look, rail by rail.
CREATE OR REPLACE VIEW symphony.payment_outbox_leases AS
SELECT w.worker_id, w.rail_type, p.outbox_id, p.instruction_id, p.claimed_at, p.lease_expires_at, p.sending_marked_at,
       p.lease_expires_at <= clock_timestamp() AS expired
  FROM symphony.payment_outbox_workers w
  JOIN symphony.payment_outbox_pending p
    ON p.hold IS NULL AND p.rail_type = w.rail_type AND p.next_attempt_at <= w.claimed_through AND p.claimed_by = w.worker_id;

-- Items that ended FAILED and that nobody has redriven or closed.
CREATE OR REPLACE VIEW symphony.payment_outbox_dead_letters AS
SELECT a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id, a.idempotency_key, a.rail_type, a.attempt_no,
       a.completed_at AS failed_at, a.rail_code, a.rail_reference, a.error_code, a.error_message, lane.blocks_its_lane
  FROM symphony.payment_outbox_attempts a
 CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM symphony.payment_outbox_blocked_lanes b
                                     WHERE b.outbox_id = a.outbox_id) AS blocks_its_lane) lane
 WHERE a.state = 'FAILED'
   AND NOT EXISTS (SELECT FROM symphony.payment_outbox_instructions i WHERE i.redrive_of = a.outbox_id)
   AND NOT EXISTS (SELECT FROM symphony.payment_outbox_events c WHERE c.outbox_id = a.outbox_id AND c.event_type = 'DEAD_LETTER_CLOSED');

-- Numbers missing from a participant's stream. Empty when all is well, at any moment.
CREATE OR REPLACE VIEW symphony.participant_sequence_gaps AS
SELECT n.participant_id, n.previous + 1 AS missing_from, n.sequence_id - 1 AS missing_to
  FROM (SELECT i.participant_id, i.sequence_id,
               lag(i.sequence_id, 1, 0::BIGINT) OVER (PARTITION BY i.participant_id ORDER BY i.sequence_id) AS previous
          FROM symphony.payment_outbox_instructions i) n
 WHERE n.sequence_id > n.previous + 1
UNION ALL
SELECT s.participant_id, coalesce(last.sequence_id, 0) + 1, s.next_sequence_id - 1
  FROM symphony.participant_outbox_sequences s
  LEFT JOIN LATERAL (SELECT i.sequence_id FROM symphony.payment_outbox_instructions i
                      WHERE i.participant_id = s.participant_id ORDER BY i.sequence_id DESC LIMIT 1) last ON true
 WHERE s.next_sequence_id <> coalesce(last.sequence_id, 0) + 1;
