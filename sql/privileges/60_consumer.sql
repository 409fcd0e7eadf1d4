-- Consumers: say in their own transaction what they apply, and forget what is older than any redelivery. Nothing else:
-- no table, not even the stamp.
GRANT EXECUTE ON FUNCTION symphony.record_event_inbox TO symphony_consumer;
GRANT EXECUTE ON FUNCTION symphony.retire_event_inbox TO symphony_consumer, symphony_operator;
-- Who applied what is a part of the story.
GRANT SELECT ON symphony.event_inbox, symphony.event_inbox_keys
    TO symphony_operator, symphony_approver, symphony_readonly, symphony_auditor;
