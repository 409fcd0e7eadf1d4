-- server_timeline: the timeline this server writes on; a promoted standby writes on a new one.
--
-- Moves    nothing
-- Caller   the functions that compare the server with the one on record
-- Locks    nothing
-- Refuses  nothing
-- Why      taken from the name of the present WAL file, because the control file keeps the old timeline until the first
--          checkpoint after a promotion. Volatile, as what it calls is: otherwise it could not be inlined.
CREATE OR REPLACE FUNCTION symphony.server_timeline() RETURNS INT
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8))::BIT(32)::INT;
