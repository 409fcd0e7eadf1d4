-- What operators and metrics read of the trigger lane. Derived, never stored.

-- Executions that ended FAILED and that nobody has replayed or closed.
CREATE OR REPLACE VIEW symphony.trigger_outbox_dead_letters AS
SELECT a.id, a.app_id, e.app_name, e.script_name, a.source_kind, a.root_execution_id, a.attempt_no, a.completed_at AS failed_at,
       a.error_code, a.error_message
  FROM symphony.trigger_outbox_attempts a
  LEFT JOIN symphony.trigger_outbox_executions e ON e.id = a.id
 WHERE a.state = 'FAILED'
   AND NOT EXISTS (SELECT FROM symphony.trigger_outbox_events c WHERE c.id = a.id AND c.event_type IN ('REPLAYED', 'DEAD_LETTER_CLOSED'));
