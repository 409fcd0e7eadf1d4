-- enqueue_trigger_outbox_batch: fire many routes or triggers at once; one answer each, by its number.
--
-- Moves    nothing -> pending (due at once), for everything that is right
-- Caller   symphony_ingest; what serves HTTP
-- Locks    the apps against deletion, in the order of their ids
-- Refuses  P7005 for arrays that do not fit together; what is not right is answered, not raised
-- Why      a producer's own transaction may fire many; none of them is refused because of another. Where a producer does not
--          say who causes it, its login does; a request over HTTP has the caller that its server authenticated, or none.
CREATE OR REPLACE FUNCTION symphony.enqueue_trigger_outbox_batch(
    p_apps TEXT[], p_source_kinds TEXT[], p_trigger_ids UUID[], p_payloads JSONB[], p_origin_principals UUID[] DEFAULT NULL,
    p_reply_tos UUID[] DEFAULT NULL, p_waits_ms INT[] DEFAULT NULL, p_traceparents TEXT[] DEFAULT NULL
) RETURNS TABLE (item_no INT, id UUID, app_id UUID, reply_deadline_at TIMESTAMPTZ, state TEXT, error_code TEXT, error_message TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_origins UUID[] := p_origin_principals;
    v_actor   UUID;
BEGIN
    IF 'http' <> ANY (p_source_kinds) AND (v_origins IS NULL
            OR cardinality(v_origins) = cardinality(p_source_kinds) AND array_position(v_origins, NULL) IS NOT NULL) THEN
        v_actor := symphony.acting_principal();
        v_origins := ARRAY(SELECT coalesce(p_origin_principals[i], CASE WHEN p_source_kinds[i] <> 'http' THEN v_actor END)
                             FROM generate_series(1, cardinality(p_source_kinds)) i ORDER BY i);
    END IF;
    RETURN QUERY
    SELECT r.item_no, r.id, r.app_id, r.reply_deadline_at, CASE WHEN r.id IS NOT NULL THEN 'PENDING' END, r.error_code,
           r.error_message
      FROM symphony.place_trigger_requests(p_apps, p_source_kinds, p_trigger_ids, p_payloads, v_origins, p_reply_tos, p_waits_ms,
                                           p_traceparents => p_traceparents) r;
END $$;
