-- count_mail: one message more from a sender to an address; answers how many it is within an hour.
--
-- Moves    nothing
-- Caller   receive_trigger_email; nobody else may
-- Locks    the count
-- Refuses  nothing
-- Why      the hour begins with the first message, so that one row says it. Whoever refuses undoes the count with it.
CREATE OR REPLACE FUNCTION symphony.count_mail(p_address TEXT, p_sender TEXT) RETURNS INT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_now   TIMESTAMPTZ := clock_timestamp();
    v_mails INT;
BEGIN
    INSERT INTO symphony.mail_counts AS c (address, sender, since) VALUES (p_address, p_sender, v_now)
    ON CONFLICT (address, sender) DO UPDATE
       SET since = CASE WHEN c.since <= v_now - INTERVAL '1 hour' THEN v_now ELSE c.since END,
           mails = CASE WHEN c.since <= v_now - INTERVAL '1 hour' THEN 1 ELSE c.mails + 1 END
    RETURNING c.mails INTO v_mails;
    RETURN v_mails;
END $$;
