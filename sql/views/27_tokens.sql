-- Access tokens of the API, without their hashes. The clock is a table of its own, because PostgreSQL 16 and newer write a
-- view over a single one in other words, and a declared view has one text.
CREATE OR REPLACE VIEW symphony.api_token_states AS
SELECT t.token_id, t.name, t.person, t.scopes,
       CASE WHEN t.revoked_at IS NOT NULL THEN 'REVOKED' WHEN t.expires_at <= clock.now THEN 'EXPIRED' ELSE 'VALID' END AS state,
       t.created_by, t.session_role, t.created_at, t.expires_at, t.revoked_at, t.revoked_by, t.revoked_why
  FROM (SELECT clock_timestamp() AS now OFFSET 0) clock
 CROSS JOIN symphony.api_tokens t;
