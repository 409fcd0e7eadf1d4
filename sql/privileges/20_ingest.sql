-- Producers: the enqueue functions and nothing else. No table, no sequence, no bump.
GRANT EXECUTE ON FUNCTION public.enqueue_payment_outbox, public.enqueue_payment_outbox_batch,
    public.enqueue_event_outbox, public.enqueue_event_outbox_batch TO symphony_ingest;
