-- Start from nothing: whatever was granted by hand, or by a blanket GRANT, is taken back here.
-- Functions created later by this owner start without PUBLIC as well (per owner; per schema it does nothing).
ALTER DEFAULT PRIVILEGES FOR ROLE symphony_control REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
DO $$
DECLARE
    v_name TEXT;
    v_roles TEXT := 'PUBLIC, symphony_ingest, symphony_executor, symphony_operator, symphony_approver, '
                    'symphony_readonly, symphony_auditor, symphony_auth, symphony_consumer';
BEGIN
    FOR v_name IN SELECT oid::pg_catalog.regclass::TEXT FROM pg_catalog.pg_class
                   WHERE relowner = 'symphony_control'::pg_catalog.regrole AND relkind IN ('r', 'v')
                     AND relnamespace = 'symphony'::pg_catalog.regnamespace
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON TABLE %s FROM %s', v_name, v_roles);
    END LOOP;
    FOR v_name IN SELECT oid::pg_catalog.regclass::TEXT FROM pg_catalog.pg_class
                   WHERE relowner = 'symphony_control'::pg_catalog.regrole AND relkind = 'S'
                     AND relnamespace = 'symphony'::pg_catalog.regnamespace
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON SEQUENCE %s FROM %s', v_name, v_roles);
    END LOOP;
    FOR v_name IN SELECT oid::pg_catalog.regprocedure::TEXT FROM pg_catalog.pg_proc
                   WHERE proowner = 'symphony_control'::pg_catalog.regrole
                     AND pronamespace = 'symphony'::pg_catalog.regnamespace
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON FUNCTION %s FROM %s', v_name, v_roles);
    END LOOP;
END $$;
-- The stamp tells any role which version it talks to, and the states which lanes are paused there; nothing else.
GRANT SELECT ON symphony.symphony_schema, symphony.outbox_lane_states TO
    symphony_ingest, symphony_executor, symphony_operator, symphony_approver, symphony_readonly, symphony_auditor;
