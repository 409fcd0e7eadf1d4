-- json_defect: what of a JSON value would cost far more than it weighs, or NULL.
--
-- Moves    nothing
-- Caller   whatever stores JSON somebody gave
-- Locks    nothing
-- Refuses  nothing: it answers, without the name of the argument
-- Why      a small value is judged by its text, which costs less than to look at its numbers; 64 KiB are more than 1,536
--          bytes can honestly become.
--          STABLE, because pg_column_size is, and a function of a lower kind than its parts is not inlined.
CREATE OR REPLACE FUNCTION symphony.json_defect(p_value JSONB) RETURNS TEXT LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(
    symphony.bulky_json_defect(p_value),
    CASE WHEN pg_catalog.pg_column_size(p_value) < 1536 AND pg_catalog.octet_length(p_value::TEXT) > 65536
         THEN 'has numbers with too many digits: send them as text' END);
