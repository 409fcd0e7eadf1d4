-- derive_key: a UUID that is the same for the same words of the same installation, for ever.
--
-- Moves    nothing
-- Caller   whatever gives a receiver something to deduplicate by
-- Locks    nothing
-- Refuses  nothing
-- Why      what is drawn at random is another one after a failover or a restore has lost the row, and the receiver acts
--          twice. The first part is preceded by its length, so that no two pairs share an input. Version 8: made by us.
--          STABLE, because convert_to is, and a function of a lower kind than its parts is not inlined.
CREATE OR REPLACE FUNCTION symphony.derive_key(p_installation_id UUID, p_first TEXT, p_second TEXT, p_number INT) RETURNS UUID
LANGUAGE sql STABLE PARALLEL SAFE
RETURN pg_catalog.overlay(pg_catalog.overlay(
    pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
        p_installation_id::TEXT || p_number::TEXT || ':' || pg_catalog.length(p_first)::TEXT || ':' || p_first || p_second,
        'UTF8')), 'hex'), 32),
    '8', 13), '8', 17)::UUID;
