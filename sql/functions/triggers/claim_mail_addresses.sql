-- claim_mail_addresses: the mail addresses of a manifest become the app's, or the push is refused.
--
-- Moves    free -> the app's, for each address without a *; the app's -> free, for those it names no more
-- Caller   push_app
-- Locks    the lane's settings, so that of two apps one is first
-- Refuses  P7006 an address that another app has claimed or was granted, or a filter with a *, without a grant of its own
-- Why      mail is what outsiders write to one app: no other may read it because it says so. An address within what an
--          operator has granted to another app is that app's too. A grant covers whatever lies within its filter.
CREATE OR REPLACE FUNCTION symphony.claim_mail_addresses(p_app_id UUID, p_app TEXT, p_manifest JSONB) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_wanted  TEXT[] := ARRAY(SELECT DISTINCT lower((e->>'filter') COLLATE "C") FROM jsonb_array_elements(coalesce(p_manifest->'triggers', '[]')) e
                               WHERE e->>'kind' = 'email' ORDER BY 1);
    v_filter  TEXT;
    v_filters TEXT[];
    v_holder  TEXT;
BEGIN
    IF cardinality(v_wanted) = 0 AND NOT EXISTS (SELECT FROM symphony.mail_addresses m WHERE m.app_id = p_app_id) THEN
        RETURN;
    END IF;
    PERFORM FROM symphony.trigger_outbox_settings s FOR NO KEY UPDATE;
    DELETE FROM symphony.mail_addresses m WHERE m.app_id = p_app_id AND m.address <> ALL (v_wanted);
    FOREACH v_filter IN ARRAY v_wanted LOOP
        CONTINUE WHEN EXISTS (SELECT FROM symphony.mail_addresses m WHERE m.address = v_filter AND m.app_id = p_app_id);
        v_filters := symphony.mail_filters(v_filter);
        v_holder := coalesce(
            (SELECT a.name FROM symphony.mail_addresses m JOIN symphony.apps a ON a.id = m.app_id WHERE m.address = v_filter),
            (SELECT min(a.name) FROM symphony.mail_grants g JOIN symphony.apps a ON a.id = g.app_id
              WHERE g.filter = ANY (v_filters) AND g.app_id <> p_app_id));
        IF v_filter !~ '[*]' AND v_holder IS NULL THEN
            INSERT INTO symphony.mail_addresses (address, app_id) VALUES (v_filter, p_app_id);
        ELSIF NOT EXISTS (SELECT FROM symphony.mail_grants g WHERE g.app_id = p_app_id AND g.filter = ANY (v_filters)) THEN
            RAISE EXCEPTION 'app % may not have the mail of %: %', quote_ident(p_app), quote_literal(v_filter),
                CASE WHEN v_filter ~ '[*]' THEN 'an operator grants a filter with a *'
                     ELSE format('it is app %s''s', quote_ident(v_holder)) END
                USING ERRCODE = 'P7006', HINT = 'An operator can grant it: symphony app mail grant APP FILTER --reason WHY --yes.';
        END IF;
    END LOOP;
END $$;
