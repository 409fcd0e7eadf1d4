// A producer in Node with pg: invoice, payment and event commit together, or not at all.
//
//   node examples/node/producer.mjs INVOICE AMOUNT IBAN      (DATABASE_URL; see examples/README.md)

import assert from 'node:assert/strict';
import pg from 'pg';

const [invoice, amount, iban] = process.argv.slice(2);
assert(iban, 'usage: node producer.mjs INVOICE AMOUNT IBAN');

/** Inside the caller's transaction: first the caller's own state, then the payment and the event, which lock. */
async function ask(client, invoice, amount) {
  const stored = await one(
    client,
    `INSERT INTO public.example_invoices (id, amount, state) VALUES ($1, $2::numeric, 'paying')
     ON CONFLICT (id) DO UPDATE SET amount = excluded.amount RETURNING event_id, occurred_at`,
    [invoice, amount],
  );
  const money = { value: amount, currency: 'EUR' }; // a text: a number would change it
  // pg sends values beside the SQL, objects as JSON. Queries without a name work behind a transaction pooler too.
  const payment = await one(
    client,
    `SELECT outbox_id, duplicate FROM symphony.enqueue_payment_outbox(p_instruction_id => $1,
         p_participant_id => $2, p_idempotency_key => $3, p_rail_type => $4, p_payload => $5)`,
    [invoice, 'acme', 'pay', 'sepa', { amount: money, destination: { iban } }],
  );
  const event = {
    envelope: {
      v: 1,
      eventId: stored.event_id,
      occurredAt: stored.occurred_at,
      tenantId: 'tnt_1',
      type: 'events.invoices.paying',
    },
    key: { invoiceId: invoice }, // events of one invoice are published in order
    payload: { invoiceId: invoice, amount: money }, // ids and figures, never personal data
  };
  const told = await one(client, 'SELECT duplicate FROM symphony.enqueue_event_outbox(p_event => $1)', [event]);
  assert.equal(told.duplicate, payment.duplicate, 'payment and event are new together, or known together');
  return payment;
}

async function one(client, sql, values) {
  return (await client.query(sql, values)).rows[0];
}

/** One business transaction, on one client: a pool's query() might take another connection. */
async function transaction(client, work) {
  await client.query('BEGIN');
  try {
    const result = await work();
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  const pay = (amount) => transaction(client, () => ask(client, invoice, amount));
  const first = await pay(amount);
  console.log(`${first.duplicate ? 'known already' : 'new'}: ${first.outbox_id}`);

  // Did the COMMIT's answer get lost? Do it all again.
  const again = await pay(amount);
  assert.deepEqual([again.duplicate, again.outbox_id], [true, first.outbox_id], 'the same request is the same payment');
  console.log(`known already: ${again.outbox_id}`);

  // The same name for another request: refused, and the invoice's new amount is rolled back with it.
  await assert.rejects(pay('0.01'), { code: 'P7004' });
  console.log('refused: P7004');

  // A transaction that is rolled back leaves nothing: the second time everything is new again.
  for (let time = 0; time < 2; time++) {
    const cancelled = new Error('the caller changed its mind');
    const rolledBack = transaction(client, async () => {
      const payment = await ask(client, `${invoice}-cancelled`, amount);
      assert(!payment.duplicate, 'nothing is left of a rolled back transaction');
      throw cancelled;
    });
    await assert.rejects(rolledBack, cancelled);
  }
  console.log('rolled back: nothing is left');
} finally {
  await client.end();
}
