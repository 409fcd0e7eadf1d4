-- is_event_time: whether a text is a time of RFC 3339 that the calendar has.
--
-- Moves    nothing
-- Caller   enqueue functions
-- Locks    nothing
-- Refuses  nothing
-- Why      a cast would raise an error that repeats the text. Two steps, because most days are before the 29th.
CREATE OR REPLACE FUNCTION symphony_internal.is_event_time(p_time TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_time ~ '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$'
   AND (pg_catalog.substr(p_time, 9, 2) <= '28'
        OR pg_catalog.substr(p_time, 6, 2) IN ('01', '03', '05', '07', '08', '10', '12')
        OR pg_catalog.substr(p_time, 6, 2) IN ('04', '06', '09', '11') AND pg_catalog.substr(p_time, 9, 2) <= '30'
        OR pg_catalog.substr(p_time, 6, 5) = '02-29'
           AND pg_catalog.substr(p_time, 1, 4) ~ '^([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)$');
