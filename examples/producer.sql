-- A producer in plain SQL: the invoice and the payment commit together, or not at all.
--
--   psql "$DATABASE_URL" -f examples/producer.sql      (after `symphony migrate`; the login needs symphony_ingest)

CREATE TABLE IF NOT EXISTS example_invoices (id TEXT PRIMARY KEY, state TEXT NOT NULL);

BEGIN;
INSERT INTO example_invoices VALUES ('inv-1', 'paying') ON CONFLICT (id) DO UPDATE SET state = 'paying';
-- Last in the transaction: the participant's stream is locked until COMMIT.
SELECT outbox_id, sequence_id, state, duplicate
  FROM public.enqueue_payment_outbox(
           p_instruction_id  => 'inv-1',
           p_participant_id  => 'acme',
           p_idempotency_key => 'pay',
           p_rail_type       => 'sepa',
           p_payload         => '{"amount": {"value": "10.00", "currency": "EUR"},
                                  "destination": {"iban": "DE89370400440532013000"}}');
COMMIT;

-- Did the COMMIT's answer get lost? Ask again, with the same key: it is the same item, and nothing is paid twice.
SELECT outbox_id, sequence_id, state, duplicate
  FROM public.enqueue_payment_outbox('inv-1', 'acme', 'pay', 'sepa',
           '{"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"iban": "DE89370400440532013000"}}');
