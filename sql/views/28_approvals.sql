-- Requests for approval.

-- Each with what became of it. A request that nobody has decided waits until it expires.
CREATE OR REPLACE VIEW symphony.outbox_approvals AS
SELECT r.request_no, r.lane, r.act, r.arguments, r.preview, r.actor, r.reason, r.session_role, r.token_id, r.created_at, r.expires_at,
       coalesce(d.decision, CASE WHEN r.expires_at > clock_timestamp() THEN 'WAITING' ELSE 'EXPIRED' END) AS state,
       d.actor AS decided_by, d.session_role AS decided_from_login, d.token_id AS decided_with_token, d.reason AS decision_reason, d.decided_at, d.answer,
       asked.name AS token_name, decided.name AS decided_with_token_name
  FROM symphony.outbox_approval_requests r
  LEFT JOIN symphony.outbox_approval_decisions d ON d.request_no = r.request_no
  LEFT JOIN symphony.api_tokens asked ON asked.token_id = r.token_id
  LEFT JOIN symphony.api_tokens decided ON decided.token_id = d.token_id;

-- How many wait in each lane, and for how long. Only those that have not expired are looked at.
CREATE OR REPLACE VIEW symphony.outbox_waiting_approvals AS
SELECT r.lane, count(*) AS requests, EXTRACT(EPOCH FROM max(clock.now) - min(r.created_at))::BIGINT AS oldest_age_seconds
  FROM (SELECT clock_timestamp() AS now OFFSET 0) clock
  JOIN symphony.outbox_approval_requests r ON r.expires_at > clock.now
 WHERE NOT EXISTS (SELECT FROM symphony.outbox_approval_decisions d WHERE d.request_no = r.request_no)
 GROUP BY r.lane;
