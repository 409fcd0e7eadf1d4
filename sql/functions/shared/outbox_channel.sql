-- outbox_channel: the channel on which this installation tells something.
--
-- Moves    nothing
-- Caller   notify_outbox_pending and whatever else sends a hint
-- Locks    nothing
-- Refuses  nothing
-- Why      two installations in one database must not wake each other's workers. In schema symphony the channels have
--          the names of the contract; any other schema's name stands before them. migrate puts the schema's name in.
CREATE OR REPLACE FUNCTION symphony.outbox_channel(p_name TEXT) RETURNS TEXT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE 'symphony'::TEXT WHEN $default$symphony$default$ THEN p_name ELSE 'symphony'::TEXT || '.' || p_name END;
