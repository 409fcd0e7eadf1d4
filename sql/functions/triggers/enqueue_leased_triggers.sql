-- enqueue_leased_triggers: requests that the caller serves and waits for, written already leased to it.
--
-- Moves    nothing -> leased, where p_leased says so and neither lane nor app is paused; else nothing -> pending (due at once)
-- Caller   symphony_executor: what serves HTTP and runs scripts
-- Locks    the apps against deletion, in the order of their ids
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED, P7020 another server than on record; what is not
--          right with one request is answered, not raised; 55P03 if an app is locked for long
-- Why      a request needs one durable commit, its completion's, which covers this one: the log is flushed in order. So
--          this commits without waiting for the disk. Nobody has been told anything before the completion; whoever lets
--          something leave earlier renews the lease first, which is a durable commit too and fails if a crash took the row.
--          A locked app is not waited for: requests of other apps are in the same call.
CREATE OR REPLACE FUNCTION symphony.enqueue_leased_triggers(
    p_worker_id TEXT, p_lease_seconds INT, p_leased BOOLEAN[], p_apps TEXT[], p_route_ids UUID[], p_payloads JSONB[],
    p_origin_principals UUID[], p_reply_tos UUID[], p_waits_ms INT[], p_traceparents TEXT[] DEFAULT NULL,
    p_ids UUID[] DEFAULT NULL, p_lease_tokens UUID[] DEFAULT NULL
) RETURNS TABLE (item_no INT, id UUID, app_id UUID, reply_deadline_at TIMESTAMPTZ, script_id UUID, principal UUID, lease_token UUID,
                 created_at TIMESTAMPTZ, error_code TEXT, error_message TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    v_count INT := cardinality(p_apps);
BEGIN
    PERFORM symphony.require_outbox_count('p_lease_seconds', p_lease_seconds, 3600);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_same_length(v_count, ARRAY['p_leased', 'p_route_ids', 'p_reply_tos', 'p_waits_ms'],
        ARRAY[cardinality(p_leased), cardinality(p_route_ids), cardinality(p_reply_tos), cardinality(p_waits_ms)]);
    IF array_position(p_reply_tos, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'p_reply_tos: somebody must wait for each: what nobody waits for is for enqueue_trigger_outbox_batch'
            USING ERRCODE = 'P7005';
    END IF;
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_known_server();
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY
    SELECT r.* FROM symphony.place_trigger_requests(
        p_apps, array_fill('http'::TEXT, ARRAY[v_count]), p_route_ids, p_payloads, p_origin_principals, p_reply_tos, p_waits_ms,
        p_worker_id, p_lease_seconds, p_leased, p_traceparents, p_ids, p_lease_tokens) r;
END $$;
