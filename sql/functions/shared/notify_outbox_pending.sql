-- notify_outbox_pending: tell listening workers that there is new work.
--
-- Moves    nothing
-- Caller   statement trigger on INSERT into a pending table or a log; its argument is the lane's word for its channel
-- Locks    an advisory lock per channel and 50 ms slot, tried and never waited for; one for a transaction, however
--          often it calls
-- Refuses  nothing
-- Why      NOTIFY serialises commits across the server, so one producer per 50 ms slot sends it and the
--          others skip. Keyed by the slot and not by one fixed key, because a producer that keeps its
--          transaction open would silence all others. A skipped hint costs one poll interval. A transaction's second
--          hint would say nothing new, and a lock for each slot it lasts would fill the server's lock table.
CREATE OR REPLACE FUNCTION symphony.notify_outbox_pending() RETURNS TRIGGER
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_channel TEXT := symphony.outbox_channel(TG_ARGV[0]);
    v_slot    INT := (floor(EXTRACT(EPOCH FROM clock_timestamp()) * 20)::BIGINT % 2147483647)::INT;
    -- Taken back with a savepoint, as the hint and its lock are.
    v_hinted  TEXT := 'symphony.hinted_' || TG_ARGV[0];
BEGIN
    IF current_setting(v_hinted, true) = pg_current_xact_id()::TEXT THEN
        RETURN NULL;
    END IF;
    IF pg_try_advisory_xact_lock(1398362189 # hashtext(v_channel), v_slot) THEN
        PERFORM pg_notify(v_channel, 'new_work'), set_config(v_hinted, pg_current_xact_id()::TEXT, true);
    END IF;
    RETURN NULL;
END $$;
