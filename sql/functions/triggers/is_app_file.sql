-- is_app_file: whether a path can name a file of an app.
--
-- Moves    nothing
-- Caller   manifest_defect
-- Locks    nothing
-- Refuses  nothing: it answers
-- Why      stacks and imports name files by it, so it leads nowhere else.
CREATE OR REPLACE FUNCTION symphony.is_app_file(p_path TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT length(p_path) <= 200 AND p_path ~ '^[^/[:cntrl:]]+(/[^/[:cntrl:]]+)*$' AND NOT '..' = ANY (string_to_array(p_path, '/'))
$$;
