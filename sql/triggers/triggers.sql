-- Triggers of the trigger lane's own ledger. ENABLE ALWAYS: an ordinary trigger is skipped under
-- session_replication_role = replica. TRUNCATE fires no row trigger and needs its own.

CREATE OR REPLACE TRIGGER trigger_outbox_attempts_only_grow
    BEFORE UPDATE OR DELETE ON symphony.trigger_outbox_attempts
    FOR EACH ROW EXECUTE FUNCTION symphony.refuse_ledger_change();
CREATE OR REPLACE TRIGGER trigger_outbox_attempts_are_never_emptied
    BEFORE TRUNCATE ON symphony.trigger_outbox_attempts
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.refuse_ledger_change();
ALTER TABLE symphony.trigger_outbox_attempts ENABLE ALWAYS TRIGGER trigger_outbox_attempts_only_grow;
ALTER TABLE symphony.trigger_outbox_attempts ENABLE ALWAYS TRIGGER trigger_outbox_attempts_are_never_emptied;

CREATE OR REPLACE TRIGGER trigger_outbox_events_only_grow
    BEFORE UPDATE OR DELETE ON symphony.trigger_outbox_events
    FOR EACH ROW EXECUTE FUNCTION symphony.refuse_ledger_change();
CREATE OR REPLACE TRIGGER trigger_outbox_events_are_never_emptied
    BEFORE TRUNCATE ON symphony.trigger_outbox_events
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.refuse_ledger_change();
ALTER TABLE symphony.trigger_outbox_events ENABLE ALWAYS TRIGGER trigger_outbox_events_only_grow;
ALTER TABLE symphony.trigger_outbox_events ENABLE ALWAYS TRIGGER trigger_outbox_events_are_never_emptied;

CREATE OR REPLACE TRIGGER trigger_outbox_pending_wakes_workers
    AFTER INSERT ON symphony.trigger_outbox_pending
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.notify_outbox_pending('trigger_outbox_pending');
