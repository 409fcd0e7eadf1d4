-- Producers: the enqueue functions and nothing else. No table, no sequence, no bump.
GRANT EXECUTE ON FUNCTION public.enqueue_payment_outbox, public.enqueue_payment_outbox_batch,
    public.enqueue_event_outbox, public.enqueue_event_outbox_batch TO symphony_ingest;
GRANT EXECUTE ON FUNCTION public.enqueue_trigger_outbox, public.enqueue_trigger_outbox_batch, public.kv_set, public.kv_delete,
    public.publish_topic, public.send_to_queue, public.receive_trigger_email TO symphony_ingest;
