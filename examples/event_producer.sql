-- A producer of events in plain SQL: the transfer and what is told about it commit together, or not at all.
--
--   psql "$DATABASE_URL" -f examples/event_producer.sql     (after `symphony migrate`; the login needs symphony_ingest)

CREATE TABLE IF NOT EXISTS example_transfers (
    id       TEXT PRIMARY KEY,
    state    TEXT NOT NULL,
    -- Made once, with the transfer, and kept: whoever has to tell it again tells the same event.
    event_id UUID NOT NULL DEFAULT gen_random_uuid(),
    told_at  TIMESTAMPTZ NOT NULL DEFAULT now()
);

BEGIN;
INSERT INTO example_transfers (id, state) VALUES ('tr_1', 'submitted') ON CONFLICT (id) DO NOTHING;
-- Last in the transaction: the key's bucket is locked until COMMIT. Numbers of money are texts; ids, and no personal data.
SELECT e.event_id, e.log_position, e.state, e.duplicate
  FROM example_transfers t
 CROSS JOIN LATERAL public.enqueue_event_outbox(p_event => jsonb_build_object(
           'envelope', jsonb_build_object(
               'v', 1,
               'eventId', t.event_id,
               'occurredAt', to_char(t.told_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'tenantId', 'tnt_1',
               'type', 'events.transfers.submitted'),
           'key', jsonb_build_object('transferId', t.id),
           'payload', jsonb_build_object('transferId', t.id, 'amount', '10.00', 'currency', 'USD'))) e
 WHERE t.id = 'tr_1';
COMMIT;

-- Did the COMMIT's answer get lost? Run all of it again: it is the same event, and nothing is told twice.
