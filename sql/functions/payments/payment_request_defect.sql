-- payment_request_defect: what is wrong with a payment request, or NULL.
--
-- Moves    nothing
-- Caller   enqueue functions
-- Locks    nothing
-- Refuses  nothing: it answers
-- Why      checked before the write and in our own words: a CHECK violation prints the failing row, account
--          numbers included. One expression, so that a batch of 500 is checked inside one statement.
--          STABLE, because pg_column_size is, and a function of a lower kind than its parts is not inlined.
CREATE OR REPLACE FUNCTION symphony.payment_request_defect(
    p_instruction_id TEXT, p_participant_id TEXT, p_idempotency_key TEXT, p_rail_type TEXT,
    p_payload JSONB, p_payload_bytes INT, p_traceparent TEXT
) RETURNS TEXT LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN p_instruction_id IS NULL OR pg_catalog.btrim(p_instruction_id, E' \t\n\r\f\x0B') = ''
        THEN 'p_instruction_id is blank: name the instruction this payment carries out'
    WHEN p_participant_id IS NULL OR pg_catalog.btrim(p_participant_id, E' \t\n\r\f\x0B') = ''
        THEN 'p_participant_id is blank: name the participant whose stream this payment joins'
    WHEN p_idempotency_key IS NULL OR pg_catalog.btrim(p_idempotency_key, E' \t\n\r\f\x0B') = ''
        THEN 'p_idempotency_key is blank: without one a retry would pay twice'
    WHEN p_rail_type IS NULL OR pg_catalog.btrim(p_rail_type, E' \t\n\r\f\x0B') = ''
        THEN 'p_rail_type is blank: name the rail that shall carry the payment'
    WHEN pg_catalog.length(p_instruction_id) > 255
        THEN 'p_instruction_id has more than 255 characters'
    WHEN pg_catalog.length(p_participant_id) > 255
        THEN 'p_participant_id has more than 255 characters'
    WHEN pg_catalog.length(p_idempotency_key) > 255
        THEN 'p_idempotency_key has more than 255 characters'
    WHEN pg_catalog.length(p_rail_type) > 255
        THEN 'p_rail_type has more than 255 characters'
    WHEN pg_catalog.jsonb_typeof(p_payload) IS DISTINCT FROM 'object'
        THEN 'p_payload must be a JSON object'
    -- Its text was not made, or is absurd for what it weighs: json_defect.
    WHEN p_payload_bytes IS NULL OR p_payload_bytes > 65536 AND pg_catalog.pg_column_size(p_payload) < 1536
        THEN 'p_payload is nested deeper than 64 levels, or has a number of too many digits: send such a number as text'
    WHEN p_payload_bytes > 1048576
        THEN 'p_payload is larger than 1 MiB'
    WHEN pg_catalog.length(p_traceparent) > 255
        THEN 'p_traceparent has more than 255 characters'
END;
