-- is_event_time: whether a text is a time of RFC 3339 that the calendar has.
--
-- Moves    nothing
-- Caller   event_defect
-- Locks    nothing
-- Refuses  nothing
-- Why      a cast would raise an error that repeats the text. The pattern is the library's (OCCURRED_AT_PATTERN): months
--          of 31 days, of 30, February to the 28th, and the 29th in leap years.
CREATE OR REPLACE FUNCTION symphony.is_event_time(p_time TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_time ~ ('^(?:'
    '(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-'
    '(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])'
    '|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)'
    '|02-(?:0[1-9]|1[0-9]|2[0-8]))'
    '|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29'
    ')T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?'
    '(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$');
