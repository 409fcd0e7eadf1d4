-- bulky_json_defect: what of a JSON value would cost far more than it weighs, or NULL; never makes it text.
--
-- Moves    nothing
-- Caller   json_defect, and the enqueue functions, which make the text of a small value anyway and look at that
-- Locks    nothing
-- Refuses  nothing: it answers, without the name of the argument
-- Why      asked before the value is ever made text: 80 KB of `1e131071` are 2 GB of digits. A level of nesting takes eight
--          bytes at least, so what is small is not looked through for depth; and below 1,536 bytes the digits of all
--          its numbers together fit into 16 MB, which the caller throws away again.
--          STABLE, because pg_column_size is, and a function of a lower kind than its parts is not inlined.
CREATE OR REPLACE FUNCTION symphony.bulky_json_defect(p_value JSONB) RETURNS TEXT LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN pg_catalog.pg_column_size(p_value) < 512 THEN NULL
    WHEN p_value OPERATOR(pg_catalog.@?) '$.**{65}'::pg_catalog.jsonpath
        THEN 'is nested deeper than 64 levels'
    WHEN pg_catalog.pg_column_size(p_value) >= 1536
         AND p_value OPERATOR(pg_catalog.@?) '$.** ? (@.type() == "number")'::pg_catalog.jsonpath AND symphony.any_wide_number(p_value)
        THEN 'has a number of more than 350 digits: send it as text'
END;
