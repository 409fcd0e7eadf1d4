-- mail_filters: every filter that covers an address, or all that a filter covers.
--
-- Moves    nothing
-- Caller   receive_trigger_email, claim_mail_addresses
-- Locks    nothing
-- Refuses  nothing
-- Why      who holds an address is found by probing an index for these, however many triggers there are. The first is the
--          address itself: its case does not count, and only that of ASCII, so that the same text is claimed and looked for.
CREATE OR REPLACE FUNCTION symphony.mail_filters(p_address TEXT) RETURNS TEXT[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT array_agg(f.filter ORDER BY f.place)
          FROM (SELECT 0 AS place, lower(p_address COLLATE "C") AS filter
                UNION ALL SELECT 1, '*' || lower(substring(p_address FROM '@[^@]*$') COLLATE "C")
                UNION ALL SELECT 2 + n, left(lower(p_address COLLATE "C"), n) || '*' FROM generate_series(0, length(p_address)) n) f
         WHERE f.filter IS NOT NULL);
