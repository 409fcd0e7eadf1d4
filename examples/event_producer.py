"""A producer of events in Python: state and event commit together, or not at all.

    pip install "psycopg[binary]"
    symphony migrate                                  # once; the login needs symphony_ingest
    python3 examples/event_producer.py "$DATABASE_URL"

Run it as often as you like: a transfer that is known is told under the same event id, and nothing is written twice.
"""

import sys
import time
import uuid
from datetime import datetime, timezone

import psycopg
from psycopg.types.json import Jsonb

TRIES = 5


def submit(connection, transfer_id, amount):
    """One business transaction. The event goes last: its key's bucket is locked until COMMIT."""
    with connection.transaction():
        # The event's id and time are kept with the state, so that a repeated try tells the very same event.
        event_id, told_at = connection.execute(
            """INSERT INTO example_transfers (id, state, event_id, told_at) VALUES (%s, 'submitted', %s, %s)
               ON CONFLICT (id) DO UPDATE SET state = example_transfers.state RETURNING event_id, told_at""",
            [transfer_id, uuid.uuid4(), datetime.now(timezone.utc)],
        ).fetchone()
        event = {
            "envelope": {
                "v": 1,
                "eventId": str(event_id),
                "occurredAt": told_at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z"),
                "tenantId": "tnt_1",
                "type": "events.transfers.submitted",
            },
            "key": {"transferId": transfer_id},  # events of one transfer are published in order
            "payload": {"transferId": transfer_id, "amount": amount, "currency": "USD"},
        }
        return connection.execute(
            "SELECT event_id, state, duplicate FROM public.enqueue_event_outbox(p_event => %s)", [Jsonb(event)]
        ).fetchone()


def with_retries(work):
    """A lost race (40001, 40P01) is repeated whole, and so is a lost connection: the event id makes that safe."""
    for attempt in range(TRIES):
        try:
            return work()
        except psycopg.OperationalError:
            if attempt == TRIES - 1:
                raise
            time.sleep(0.1 * 2**attempt)


def main(url):
    def once():
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                """CREATE TABLE IF NOT EXISTS example_transfers (
                       id TEXT PRIMARY KEY, state TEXT NOT NULL,
                       event_id UUID NOT NULL DEFAULT gen_random_uuid(), told_at TIMESTAMPTZ NOT NULL DEFAULT now())"""
            )
            return submit(connection, "tr_2", "25.00")

    try:
        event_id, state, duplicate = with_retries(once)
    except psycopg.Error as error:
        # P7004: the id belongs to another event. P7005: not an event; the message names the field.
        sys.exit(f"{error.sqlstate or 'no connection'}: {error.diag.message_primary or error}")
    print(f"{event_id} {state}{' (known already)' if duplicate else ''}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
