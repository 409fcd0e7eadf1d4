// A consumer in Node with pg, behind `symphony consume`: keeps balances, each event applied once.
//
//   node examples/node/consumer.mjs 127.0.0.1:8080      (DATABASE_URL; see examples/README.md)

import assert from 'node:assert/strict';
import http from 'node:http';
import pg from 'pg';

const [host, port] = (process.argv[2] ?? '').split(':');
assert(port, 'usage: node consumer.mjs HOST:PORT');

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
pool.on('error', () => {}); // an idle connection was lost: the next event makes another
// One that is lost between two queries of a transaction: the next query says so. Without a listener, Node would end.
pool.on('connect', (client) => client.on('error', () => {}));

/** The inbox row and the effect, in one transaction. False if the event was applied before. */
async function apply(event) {
  const client = await pool.connect();
  let lost = true;
  try {
    await client.query('BEGIN');
    const inbox = await client.query(
      'SELECT symphony.record_event_inbox(p_consumer => $1, p_event_id => $2) AS first',
      ['balances', event.envelope.eventId],
    );
    const { first } = inbox.rows[0];
    if (first) {
      const [account] = Object.values(event.key);
      const { cents } = event.payload;
      assert(Number.isSafeInteger(cents), 'payload.cents is no whole number');
      await client.query(
        `INSERT INTO public.example_balances AS b (account, cents) VALUES ($1, $2)
         ON CONFLICT (account) DO UPDATE SET cents = b.cents + excluded.cents`,
        [account, cents],
      );
    }
    await client.query('COMMIT');
    lost = false;
    return first;
  } finally {
    client.release(lost); // a connection in doubt is closed, which rolls back
  }
}

/** Whether it is the database that is away, and not the event that is wrong. */
const isAway = ({ code = '', message = '' }) =>
  /^(08|28|53|57|E[A-Z]+$)/.test(code) || /^(Connection terminated|Client has encountered)/.test(message);

const server = http.createServer(async (request, response) => {
  let status = 204; // only after the commit
  try {
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += chunk;
    const first = await apply(JSON.parse(body));
    console.log(first ? 'applied' : 'known already', request.headers['symphony-event-id']);
  } catch (error) {
    // Not applied: it comes again. 503 says that nothing is wrong with the event, and counts as no try.
    status = isAway(error) ? 503 : 500;
    console.error('not applied:', error.code ?? error.name);
  }
  response.writeHead(status).end();
});
server.listen(Number(port), host, () => console.log(`listening on ${host}:${server.address().port}`));
