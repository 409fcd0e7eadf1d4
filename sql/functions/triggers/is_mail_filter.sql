-- is_mail_filter: whether a filter is an address, or has one * at its end or stands for a domain: *@example.com.
--
-- Moves    nothing
-- Caller   manifest_defect, grant_app_mail
-- Locks    nothing
-- Refuses  nothing
-- Why      what holds an address is found by index: only these shapes have so few that cover one. Unknown for NULL.
CREATE OR REPLACE FUNCTION symphony.is_mail_filter(p_filter TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_filter <> '' AND length(p_filter) <= 512 AND (p_filter !~ '[*].' OR p_filter ~ '^[*]@[^*@]+$');
