-- event_groups: the groups under which a producer of these buckets registers.
--
-- Moves    nothing
-- Caller   enqueue_event_outbox_batch
-- Locks    nothing
-- Refuses  nothing
-- Why      whoever tells events all over registers for all by one lock, number 32, instead of by one for each.
CREATE OR REPLACE FUNCTION symphony.event_groups(p_buckets SMALLINT[]) RETURNS INT[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT CASE WHEN count(DISTINCT b OPERATOR(pg_catalog./) 8::SMALLINT) OPERATOR(pg_catalog.<=) 8
                    THEN array_agg(DISTINCT (b OPERATOR(pg_catalog./) 8::SMALLINT)::INT) ELSE '{32}'::INT[] END
          FROM pg_catalog.unnest(p_buckets) b);
