-- The roles: NOLOGIN groups. Logins are the operator's own and are granted one or more of these.
-- Roles belong to the whole cluster: another database's migration may create them at this very moment, so
-- "exists already" is no error, in whichever of its two forms it arrives.
DO $$
DECLARE
    v_role TEXT;
BEGIN
    FOREACH v_role IN ARRAY ARRAY['symphony_control', 'symphony_ingest', 'symphony_executor', 'symphony_operator',
                                  'symphony_approver', 'symphony_readonly', 'symphony_auditor', 'symphony_auth',
                                  'symphony_consumer']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = v_role) THEN
            BEGIN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', v_role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END $$;
