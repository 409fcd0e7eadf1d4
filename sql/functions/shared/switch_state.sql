-- switch_state: what a switch is called.
--
-- Moves    nothing
-- Caller   every pause and resume
-- Locks    nothing
-- Refuses  nothing
-- Why      one word for one thing in every lane. Where nothing was ever said, it runs.
CREATE OR REPLACE FUNCTION symphony.switch_state(p_paused BOOLEAN) RETURNS TEXT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_paused THEN 'PAUSED' ELSE 'RUNNING' END;
