-- Producers: the enqueue functions and nothing else. No table, no sequence, no bump.
GRANT EXECUTE ON FUNCTION symphony.enqueue_payment_outbox, symphony.enqueue_payment_outbox_batch,
    symphony.enqueue_event_outbox, symphony.enqueue_event_outbox_batch TO symphony_ingest;
GRANT EXECUTE ON FUNCTION symphony.enqueue_trigger_outbox, symphony.enqueue_trigger_outbox_batch, symphony.kv_set, symphony.kv_delete,
    symphony.publish_topic, symphony.send_to_queue, symphony.receive_trigger_email TO symphony_ingest;
