-- manifest_queues: the queues that a manifest declares.
--
-- Moves    nothing
-- Caller   push_app, manifest_defect
-- Locks    nothing
-- Refuses  nothing
-- Why      a queue is a name, or an object where there is more to say of it.
CREATE OR REPLACE FUNCTION symphony.manifest_queues(p_manifest JSONB) RETURNS TABLE (name TEXT, serial BOOLEAN)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE jsonb_typeof(q) WHEN 'object' THEN q->>'name' ELSE q #>> '{}' END,
           CASE jsonb_typeof(q) WHEN 'object' THEN coalesce((q->>'serial')::BOOLEAN, false) ELSE false END
      FROM jsonb_array_elements(coalesce(p_manifest->'queues', '[]')) q
$$;
