-- canonical_person: a person's name without case, spaces and punctuation, to compare it with another.
--
-- Moves    nothing
-- Caller   require_second_person, approve_outbox_request; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      "dana", "Dana" and "dana." are one person to an approval. Two people whose names differ in nothing else are taken
--          for one, which refuses too much and never too little.
CREATE OR REPLACE FUNCTION symphony.canonical_person(p_person TEXT) RETURNS TEXT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN lower(regexp_replace(p_person, '[[:space:][:punct:]]', '', 'g'));
