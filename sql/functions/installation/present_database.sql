-- present_database: the database this is, as its server numbers it.
--
-- Moves    nothing
-- Caller   the functions that compare the server with the one on record
-- Locks    nothing
-- Refuses  nothing
-- Why      a standby keeps the number, also once it is promoted; a copy or a restored dump has another.
CREATE OR REPLACE FUNCTION symphony.present_database() RETURNS OID
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database());
