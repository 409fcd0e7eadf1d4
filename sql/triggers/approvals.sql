-- Requests and decisions only grow, as every ledger does (sql/triggers/payments.sql says why ENABLE ALWAYS).

CREATE OR REPLACE TRIGGER outbox_approval_requests_only_grow
    BEFORE UPDATE OR DELETE ON symphony.outbox_approval_requests
    FOR EACH ROW EXECUTE FUNCTION symphony.refuse_ledger_change();
CREATE OR REPLACE TRIGGER outbox_approval_requests_are_never_emptied
    BEFORE TRUNCATE ON symphony.outbox_approval_requests
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.refuse_ledger_change();
ALTER TABLE symphony.outbox_approval_requests ENABLE ALWAYS TRIGGER outbox_approval_requests_only_grow;
ALTER TABLE symphony.outbox_approval_requests ENABLE ALWAYS TRIGGER outbox_approval_requests_are_never_emptied;

CREATE OR REPLACE TRIGGER outbox_approval_decisions_only_grow
    BEFORE UPDATE OR DELETE ON symphony.outbox_approval_decisions
    FOR EACH ROW EXECUTE FUNCTION symphony.refuse_ledger_change();
CREATE OR REPLACE TRIGGER outbox_approval_decisions_are_never_emptied
    BEFORE TRUNCATE ON symphony.outbox_approval_decisions
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.refuse_ledger_change();
ALTER TABLE symphony.outbox_approval_decisions ENABLE ALWAYS TRIGGER outbox_approval_decisions_only_grow;
ALTER TABLE symphony.outbox_approval_decisions ENABLE ALWAYS TRIGGER outbox_approval_decisions_are_never_emptied;
