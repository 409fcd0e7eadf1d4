-- backoff: how many seconds to wait after the attempt with this number.
--
-- Moves    nothing
-- Caller   the completion functions
-- Locks    nothing
-- Refuses  nothing
-- Why      deterministic, so that a test can state the delay and an auditor can recompute it: 1, 2, 4, ...
--          seconds, never more than an hour. Spreading a herd is the caller's business (its own delay).
CREATE OR REPLACE FUNCTION symphony.backoff(p_attempt_no INT) RETURNS INT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN LEAST(3600, pg_catalog.power(2, LEAST(GREATEST(p_attempt_no, 1), 13) - 1)::INT);
