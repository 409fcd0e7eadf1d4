-- has_denied_member: whether a payload has a denied member, at any depth.
--
-- Moves    nothing
-- Caller   enqueue_event_outbox_batch, for payloads that are not flat; event_defect
-- Locks    nothing
-- Refuses  nothing
-- Why      a flat payload, as most are, is checked by one operator and never comes here.
CREATE OR REPLACE FUNCTION symphony.has_denied_member(p_payload JSONB, p_denied_keys TEXT[]) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN EXISTS (SELECT FROM pg_catalog.jsonb_path_query(p_payload, '$.** ? (@.type() == "object")') inner_object(o)
                WHERE inner_object.o ?| p_denied_keys);
