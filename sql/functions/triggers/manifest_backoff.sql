-- manifest_backoff: a manifest entry's pauses between attempts.
--
-- Moves    nothing
-- Caller   push_app
-- Locks    nothing
-- Refuses  nothing: manifest_defect has looked
-- Why      routes and triggers write them alike.
CREATE OR REPLACE FUNCTION symphony.manifest_backoff(p_entry JSONB) RETURNS INT[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_entry ? 'backoffSeconds'
            THEN ARRAY(SELECT s::INT FROM pg_catalog.jsonb_array_elements_text(p_entry->'backoffSeconds') WITH ORDINALITY b(s, n) ORDER BY b.n)
            ELSE '{1,5,30,120,600}'::INT[] END;
