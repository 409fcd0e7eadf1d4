-- list_app_secrets: the names of an app's secrets, and by which key each is sealed.
--
-- Moves    nothing
-- Caller   symphony_operator, symphony_approver, symphony_readonly, symphony_auditor
-- Locks    nothing
-- Refuses  P7007 no such app
-- Why      nobody reads a secret back: whoever needs it has it, and scripts get it from the process that runs them.
CREATE OR REPLACE FUNCTION symphony.list_app_secrets(p_app TEXT)
RETURNS TABLE (name TEXT, key_id TEXT, set_by TEXT, set_at TIMESTAMPTZ)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id UUID := symphony.find_app(p_app);
BEGIN
    RETURN QUERY SELECT s.name, s.key_id, s.set_by, s.set_at FROM symphony.app_secrets s WHERE s.app_id = v_app_id ORDER BY s.name;
END $$;
