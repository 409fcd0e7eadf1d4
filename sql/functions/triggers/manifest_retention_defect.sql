-- manifest_retention_defect: what is wrong with how long an app's executions and logs are to be kept, or NULL.
--
-- Moves    nothing
-- Caller   manifest_defect
-- Locks    nothing
-- Refuses  nothing: it answers, naming the field
-- Why      what cannot be read as a number of days must not become another one.
CREATE OR REPLACE FUNCTION symphony.manifest_retention_defect(p_retention JSONB) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_field TEXT;
BEGIN
    IF p_retention IS NULL THEN
        RETURN NULL;
    ELSIF jsonb_typeof(p_retention) <> 'object' THEN
        RETURN 'retention must be an object';
    END IF;
    FOR v_field IN SELECT k FROM jsonb_object_keys(p_retention) k LOOP
        IF v_field NOT IN ('executionsDays', 'logsDays') THEN
            RETURN format('retention.%s is not known: it has executionsDays, logsDays', quote_ident(left(v_field, 100)));
        ELSIF jsonb_typeof(p_retention->v_field) <> 'number' OR p_retention->>v_field !~ '^[0-9]{1,5}$'
              OR (p_retention->>v_field)::INT NOT BETWEEN 1 AND 36500 THEN
            RETURN format('retention.%s must be a whole number of days from 1 to 36500', v_field);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
