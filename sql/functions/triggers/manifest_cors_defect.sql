-- manifest_cors_defect: what is wrong with a manifest's cors, or NULL.
--
-- Moves    nothing
-- Caller   manifest_defect
-- Locks    nothing
-- Refuses  nothing: it answers, naming the field
-- Why      a browser ignores what it cannot read, and the page's author looks in the wrong place.
CREATE OR REPLACE FUNCTION symphony.manifest_cors_defect(p_cors JSONB) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_field TEXT;
BEGIN
    IF p_cors IS NULL THEN
        RETURN NULL;
    ELSIF jsonb_typeof(p_cors) <> 'object' THEN
        RETURN 'cors must be an object';
    END IF;
    SELECT f INTO v_field FROM jsonb_object_keys(p_cors) f
     WHERE f NOT IN ('origins', 'methods', 'headers', 'exposedHeaders', 'credentials', 'maxAgeSeconds') LIMIT 1;
    IF FOUND THEN
        RETURN format('cors.%s is not known: it has origins, methods, headers, exposedHeaders, credentials, maxAgeSeconds', quote_ident(left(v_field, 100)));
    END IF;
    FOREACH v_field IN ARRAY ARRAY['origins', 'methods', 'headers', 'exposedHeaders'] LOOP
        IF (p_cors ? v_field OR v_field = 'origins') AND (coalesce(jsonb_typeof(p_cors->v_field), 'null') <> 'array'
                OR jsonb_array_length(p_cors->v_field) NOT BETWEEN 1 AND 100
                OR EXISTS (SELECT FROM jsonb_array_elements(p_cors->v_field) e
                            WHERE (jsonb_typeof(e) = 'string' AND length(e #>> '{}') <= 255 AND e #>> '{}' ~ CASE v_field
                                    WHEN 'origins' THEN '^(\*|https?://[a-z0-9.:\[\]-]+)$'
                                    WHEN 'methods' THEN '^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$'
                                    ELSE '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$' END) IS NOT TRUE)) THEN
            RETURN format('cors.%s must be 1 to 100 %s', v_field, CASE v_field
                WHEN 'origins' THEN 'origins such as https://example.com, without a path, or *'
                WHEN 'methods' THEN 'methods such as GET'
                ELSE 'names of headers' END);
        END IF;
    END LOOP;
    IF p_cors ? 'credentials' AND jsonb_typeof(p_cors->'credentials') <> 'boolean' THEN
        RETURN 'cors.credentials must be true or false';
    ELSIF p_cors->'credentials' = 'true' AND p_cors->'origins' ? '*' THEN
        RETURN 'cors.credentials must not be true where cors.origins has *: name the origins';
    ELSIF p_cors ? 'maxAgeSeconds' AND (jsonb_typeof(p_cors->'maxAgeSeconds') <> 'number' OR p_cors->>'maxAgeSeconds' !~ '^[0-9]{1,5}$'
            OR (p_cors->>'maxAgeSeconds')::INT > 86400) THEN
        RETURN 'cors.maxAgeSeconds must be a whole number up to 86400';
    END IF;
    RETURN NULL;
END $$;
