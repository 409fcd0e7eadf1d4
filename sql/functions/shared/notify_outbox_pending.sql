-- notify_outbox_pending: tell listening workers that there is new work.
--
-- Moves    nothing
-- Caller   statement trigger on INSERT into a pending table or a log; its argument is the lane's word for its channel
-- Locks    an advisory lock per channel and 50 ms slot, tried and never waited for
-- Refuses  nothing
-- Why      NOTIFY serialises commits across the server, so one producer per 50 ms slot sends it and the
--          others skip. Keyed by the slot and not by one fixed key, because a producer that keeps its
--          transaction open would silence all others. A skipped hint costs one poll interval.
CREATE OR REPLACE FUNCTION symphony.notify_outbox_pending() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_channel TEXT := symphony.outbox_channel(TG_ARGV[0]);
    v_slot    INT := (floor(EXTRACT(EPOCH FROM clock_timestamp()) * 20)::BIGINT % 2147483647)::INT;
BEGIN
    IF pg_try_advisory_xact_lock(1398362189 # hashtext(v_channel), v_slot) THEN
        PERFORM pg_notify(v_channel, 'new_work');
    END IF;
    RETURN NULL;
END $$;
