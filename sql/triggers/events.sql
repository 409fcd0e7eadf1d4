-- Triggers of the event lane; ENABLE ALWAYS and TRUNCATE as in the payment lane.

CREATE OR REPLACE TRIGGER event_outbox_attempts_only_grow
    BEFORE UPDATE OR DELETE ON symphony.event_outbox_attempts
    FOR EACH ROW EXECUTE FUNCTION symphony.refuse_ledger_change();
CREATE OR REPLACE TRIGGER event_outbox_attempts_are_never_emptied
    BEFORE TRUNCATE ON symphony.event_outbox_attempts
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.refuse_ledger_change();
ALTER TABLE symphony.event_outbox_attempts ENABLE ALWAYS TRIGGER event_outbox_attempts_only_grow;
ALTER TABLE symphony.event_outbox_attempts ENABLE ALWAYS TRIGGER event_outbox_attempts_are_never_emptied;

CREATE OR REPLACE TRIGGER event_outbox_events_only_grow
    BEFORE UPDATE OR DELETE ON symphony.event_outbox_events
    FOR EACH ROW EXECUTE FUNCTION symphony.refuse_ledger_change();
CREATE OR REPLACE TRIGGER event_outbox_events_are_never_emptied
    BEFORE TRUNCATE ON symphony.event_outbox_events
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.refuse_ledger_change();
ALTER TABLE symphony.event_outbox_events ENABLE ALWAYS TRIGGER event_outbox_events_only_grow;
ALTER TABLE symphony.event_outbox_events ENABLE ALWAYS TRIGGER event_outbox_events_are_never_emptied;

CREATE OR REPLACE TRIGGER event_outbox_log_only_grows
    BEFORE UPDATE OR DELETE ON symphony.event_outbox_log
    FOR EACH ROW EXECUTE FUNCTION symphony.refuse_ledger_change();
CREATE OR REPLACE TRIGGER event_outbox_log_is_never_emptied
    BEFORE TRUNCATE ON symphony.event_outbox_log
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.refuse_ledger_change();
ALTER TABLE symphony.event_outbox_log ENABLE ALWAYS TRIGGER event_outbox_log_only_grows;
ALTER TABLE symphony.event_outbox_log ENABLE ALWAYS TRIGGER event_outbox_log_is_never_emptied;

CREATE OR REPLACE TRIGGER event_outbox_identities_only_grow
    BEFORE UPDATE OR DELETE ON symphony.event_outbox_identities
    FOR EACH ROW EXECUTE FUNCTION symphony.refuse_ledger_change();
CREATE OR REPLACE TRIGGER event_outbox_identities_are_never_emptied
    BEFORE TRUNCATE ON symphony.event_outbox_identities
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.refuse_ledger_change();
ALTER TABLE symphony.event_outbox_identities ENABLE ALWAYS TRIGGER event_outbox_identities_only_grow;
ALTER TABLE symphony.event_outbox_identities ENABLE ALWAYS TRIGGER event_outbox_identities_are_never_emptied;

CREATE OR REPLACE TRIGGER event_outbox_log_wakes_workers
    AFTER INSERT ON symphony.event_outbox_log
    FOR EACH STATEMENT EXECUTE FUNCTION symphony.notify_outbox_pending('event_outbox_pending');
