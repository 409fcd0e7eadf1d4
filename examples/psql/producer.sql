-- A producer in psql: invoice, payment and event commit together, or not at all.
--
--   echo INVOICE,AMOUNT,IBAN | psql "$DATABASE_URL" -f examples/psql/producer.sql      (see examples/README.md)
--
-- What stands in a statement's text ends in the server's log, and psql's variables are written into it. So the values come
-- by \copy, beside the SQL, and payloads are built from rows. (psql 16 and later have \bind too.)
\set ON_ERROR_STOP on
\set QUIET on
\pset tuples_only on
\pset format unaligned

CREATE TEMPORARY TABLE asked (invoice TEXT PRIMARY KEY, amount NUMERIC NOT NULL, iban TEXT NOT NULL);
\copy asked FROM pstdin (FORMAT csv)

-- The caller's own state.
PREPARE store AS
INSERT INTO public.example_invoices (id, amount, state) SELECT invoice, amount, 'paying' FROM asked
    ON CONFLICT (id) DO UPDATE SET amount = excluded.amount;

-- Then the payment and the event, which lock until COMMIT. Amounts are texts: of a number 1.10 and 1.1 are the same.
PREPARE pay AS
SELECT p.outbox_id, p.duplicate
  FROM asked
 CROSS JOIN LATERAL symphony.enqueue_payment_outbox(
           p_instruction_id  => invoice,
           p_participant_id  => 'acme',
           p_idempotency_key => 'pay',
           p_rail_type       => 'sepa',
           p_payload         => jsonb_build_object(
               'amount', jsonb_build_object('value', amount::text, 'currency', 'EUR'),
               'destination', jsonb_build_object('iban', iban))) p;

PREPARE tell AS
SELECT e.duplicate
  FROM asked
  JOIN public.example_invoices i ON i.id = invoice
 CROSS JOIN LATERAL symphony.enqueue_event_outbox(p_event => jsonb_build_object(
           'envelope', jsonb_build_object(
               'v', 1,
               'eventId', i.event_id,
               'occurredAt', i.occurred_at,
               'tenantId', 'tnt_1',
               'type', 'events.invoices.paying'),
           'key', jsonb_build_object('invoiceId', i.id),
           'payload', jsonb_build_object('invoiceId', i.id, 'amount',
               jsonb_build_object('value', asked.amount::text, 'currency', 'EUR')))) e;

-- One business transaction.
BEGIN;
EXECUTE store;
EXECUTE pay \gset first_
EXECUTE tell \gset told_
COMMIT;
SELECT CASE WHEN :'first_duplicate' THEN 'known already: ' ELSE 'new: ' END || :'first_outbox_id';

-- Did the COMMIT's answer get lost? Do it all again.
BEGIN;
EXECUTE store;
EXECUTE pay \gset again_
EXECUTE tell \gset told_
COMMIT;
SELECT :'again_duplicate' AND :'told_duplicate' AND :'again_outbox_id' = :'first_outbox_id' AS holds \gset
\if :holds
\else
DO $$ BEGIN RAISE 'expected: the same request is the same payment'; END $$;
\endif
\echo known already: :again_outbox_id

-- The same name for another request: refused, and the invoice's new amount is rolled back with it.
UPDATE asked SET amount = amount + 1;
BEGIN;
EXECUTE store;
\set ON_ERROR_STOP off
EXECUTE pay;
\set refusal :SQLSTATE
ROLLBACK;
\set ON_ERROR_STOP on
SELECT :'refusal' = 'P7004' AS holds \gset
\if :holds
\else
DO $$ BEGIN RAISE 'expected: another request under the same name is refused with P7004'; END $$;
\endif
\echo refused: :refusal

-- A transaction that is rolled back leaves nothing: the second time everything is new again.
UPDATE asked SET invoice = invoice || '-cancelled';
BEGIN;
EXECUTE store;
EXECUTE pay \gset cancelled_
EXECUTE tell \gset told_
ROLLBACK;
BEGIN;
EXECUTE store;
EXECUTE pay \gset cancelled_
EXECUTE tell \gset told_
ROLLBACK;
SELECT NOT :'cancelled_duplicate' AND NOT :'told_duplicate' AS holds \gset
\if :holds
\else
DO $$ BEGIN RAISE 'expected: nothing is left of a rolled back transaction'; END $$;
\endif
\echo rolled back: nothing is left
