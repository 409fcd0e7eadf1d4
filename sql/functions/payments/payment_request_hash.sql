-- payment_request_hash: the identity of a request, whatever its payload later becomes.
--
-- Moves    nothing
-- Caller   enqueue functions
-- Locks    nothing
-- Refuses  nothing
-- Why      the payload's text delimits itself and the participant is preceded by its length, so no two
--          requests share an input; SHA-256, so that nobody can make two requests share a hash.
--          STABLE, because convert_to is, and a function of a lower kind than its parts is not inlined.
CREATE OR REPLACE FUNCTION symphony.payment_request_hash(p_participant_id TEXT, p_rail_type TEXT, p_payload_text TEXT)
RETURNS BYTEA LANGUAGE sql STABLE PARALLEL SAFE
RETURN pg_catalog.sha256(pg_catalog.convert_to(
    p_payload_text || pg_catalog.length(p_participant_id)::TEXT || ':' || p_participant_id || p_rail_type, 'UTF8'));
