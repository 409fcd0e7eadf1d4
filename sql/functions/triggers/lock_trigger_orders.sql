-- lock_trigger_orders: whoever adds to these orders of messages, or ends one of them, does so alone.
--
-- Moves    nothing
-- Caller   place_trigger, apply_trigger_effects, end_triggers; nobody else may
-- Locks    one of 64 advisory locks of the app for each order, in the order of their numbers, until the transaction ends
-- Refuses  nothing
-- Why      a sender that does not see the end of the message before its own would wait for it for ever. No lock an order:
--          one app could fill the server's lock table.
CREATE OR REPLACE FUNCTION symphony.lock_trigger_orders(p_app_ids UUID[], p_order_keys TEXT[]) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_lock BIGINT;
BEGIN
    FOR v_lock IN SELECT DISTINCT hashtextextended('symphony order ' || (hashtext(o.order_key) & 63) || ' of ' || o.app_id, 0)
                    FROM unnest(p_app_ids, p_order_keys) o(app_id, order_key) ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(v_lock);
    END LOOP;
END $$;
