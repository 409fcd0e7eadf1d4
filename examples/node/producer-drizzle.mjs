// A producer in Node with Drizzle: invoice, payment and event commit together, or not at all.
//
//   node examples/node/producer-drizzle.mjs INVOICE AMOUNT IBAN      (DATABASE_URL; see examples/README.md)

import assert from 'node:assert/strict';
import { sql, TransactionRollbackError } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { numeric, pgTable, text, uuid } from 'drizzle-orm/pg-core';

const [invoice, amount, iban] = process.argv.slice(2);
assert(iban, 'usage: node producer-drizzle.mjs INVOICE AMOUNT IBAN');

const invoices = pgTable('example_invoices', {
  id: text().primaryKey(),
  amount: numeric().notNull(), // comes and goes as text
  state: text().notNull(),
  eventId: uuid('event_id').notNull().defaultRandom(),
  occurredAt: text('occurred_at').notNull().default(sql`''`), // the database's own default
});

/** Inside the caller's transaction: first the caller's own state, then the payment and the event, which lock. */
async function ask(tx, invoice, amount) {
  const [stored] = await tx
    .insert(invoices)
    .values({ id: invoice, amount, state: 'paying' })
    .onConflictDoUpdate({ target: invoices.id, set: { amount } })
    .returning();
  const money = { value: amount, currency: 'EUR' }; // a text: a number would change it
  // What stands in ${} of the sql template is bound, not written into the text. (sql.raw would write it.)
  const payload = JSON.stringify({ amount: money, destination: { iban } });
  const payment = await one(
    tx,
    sql`SELECT outbox_id, duplicate FROM symphony.enqueue_payment_outbox(p_instruction_id => ${invoice},
            p_participant_id => ${'acme'}, p_idempotency_key => ${'pay'}, p_rail_type => ${'sepa'},
            p_payload => ${payload}::jsonb)`,
  );
  const event = JSON.stringify({
    envelope: {
      v: 1,
      eventId: stored.eventId,
      occurredAt: stored.occurredAt,
      tenantId: 'tnt_1',
      type: 'events.invoices.paying',
    },
    key: { invoiceId: invoice }, // events of one invoice are published in order
    payload: { invoiceId: invoice, amount: money }, // ids and figures, never personal data
  });
  const told = await one(tx, sql`SELECT duplicate FROM symphony.enqueue_event_outbox(p_event => ${event}::jsonb)`);
  assert.equal(told.duplicate, payment.duplicate, 'payment and event are new together, or known together');
  return payment;
}

async function one(tx, query) {
  return (await tx.execute(query)).rows[0];
}

const db = drizzle(process.env.DATABASE_URL);
try {
  const pay = (amount) => db.transaction((tx) => ask(tx, invoice, amount));
  const first = await pay(amount);
  console.log(`${first.duplicate ? 'known already' : 'new'}: ${first.outbox_id}`);

  // Did the COMMIT's answer get lost? Do it all again.
  const again = await pay(amount);
  assert.deepEqual([again.duplicate, again.outbox_id], [true, first.outbox_id], 'the same request is the same payment');
  console.log(`known already: ${again.outbox_id}`);

  // The same name for another request: refused, and the invoice's new amount is rolled back with it.
  // Drizzle's own message has the values in it: log the cause, never the error.
  await assert.rejects(pay('0.01'), ({ cause }) => cause.code === 'P7004');
  console.log('refused: P7004');

  // A transaction that is rolled back leaves nothing: the second time everything is new again.
  for (let time = 0; time < 2; time++) {
    const rolledBack = db.transaction(async (tx) => {
      const payment = await ask(tx, `${invoice}-cancelled`, amount);
      assert(!payment.duplicate, 'nothing is left of a rolled back transaction');
      tx.rollback();
    });
    await assert.rejects(rolledBack, TransactionRollbackError);
  }
  console.log('rolled back: nothing is left');
} finally {
  await db.$client.end();
}
