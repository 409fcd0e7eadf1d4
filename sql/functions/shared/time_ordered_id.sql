-- time_ordered_id: a new id, time first, for rows whose id is needed before they are written.
--
-- Moves    nothing
-- Caller   place_trigger
-- Locks    nothing
-- Refuses  nothing
-- Why      uuidv7() is in pg_catalog from PostgreSQL 18 on and in our schema before, so no one name is right everywhere
--          under a fixed search path; defaults of columns find theirs when the table is made.
CREATE OR REPLACE FUNCTION symphony.time_ordered_id() RETURNS UUID
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN pg_catalog.encode(
    pg_catalog.set_bit(
        pg_catalog.set_bit(
            pg_catalog.overlay(
                pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
                pg_catalog.substring(
                    pg_catalog.int8send(
                        pg_catalog.floor(EXTRACT(EPOCH FROM pg_catalog.clock_timestamp()) * 1000)::BIGINT), 3),
                1, 6),
            52, 1),
        53, 1),
    'hex')::UUID;
