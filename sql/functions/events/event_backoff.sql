-- event_backoff: how many seconds an event waits after the attempt with this number.
--
-- Moves    nothing
-- Caller   completion functions, where the worker names no delay
-- Locks    nothing
-- Refuses  nothing
-- Why      1 s, 5 s, 30 s, 2 min, 10 min, then an hour: as the contract says, and the same for an auditor.
CREATE OR REPLACE FUNCTION symphony.event_backoff(p_attempt_no INT) RETURNS INT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('{1,5,30,120,600,3600}'::INT[])[LEAST(GREATEST(coalesce(p_attempt_no, 1), 1), 6)];
