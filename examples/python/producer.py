"""A producer in Python with psycopg 3: invoice, payment and event commit together, or not at all.

    python3 examples/python/producer.py INVOICE AMOUNT IBAN      (DATABASE_URL; see examples/README.md)
"""

import os
import sys
import time

import psycopg
from psycopg.types.json import Jsonb

TRIES = 5


def ask(connection, invoice, amount, iban):
    """Inside the caller's transaction: first the caller's own state, then the payment and the event, which lock."""
    event_id, occurred_at = connection.execute(
        """INSERT INTO public.example_invoices (id, amount, state) VALUES (%s, %s::numeric, 'paying')
           ON CONFLICT (id) DO UPDATE SET amount = excluded.amount RETURNING event_id, occurred_at""",
        [invoice, amount],
    ).fetchone()
    money = {"value": amount, "currency": "EUR"}  # a text: a float would change it
    # Values travel beside the SQL. (psycopg 2, and psycopg 3's ClientCursor, would write them into it.)
    outbox_id, duplicate = connection.execute(
        """SELECT outbox_id, duplicate FROM symphony.enqueue_payment_outbox(p_instruction_id => %s,
               p_participant_id => %s, p_idempotency_key => %s, p_rail_type => %s, p_payload => %s)""",
        [invoice, "acme", "pay", "sepa", Jsonb({"amount": money, "destination": {"iban": iban}})],
    ).fetchone()
    event = {
        "envelope": {
            "v": 1,
            "eventId": str(event_id),
            "occurredAt": occurred_at,
            "tenantId": "tnt_1",
            "type": "events.invoices.paying",
        },
        "key": {"invoiceId": invoice},  # events of one invoice are published in order
        "payload": {"invoiceId": invoice, "amount": money},  # ids and figures, never personal data
    }
    (told_before,) = connection.execute(
        "SELECT duplicate FROM symphony.enqueue_event_outbox(p_event => %s)", [Jsonb(event)]
    ).fetchone()
    expect(told_before == duplicate, "payment and event are new together, or known together")
    return outbox_id, duplicate


def pay(connection, invoice, amount, iban):
    """One business transaction. A lost race (40001, 40P01) is repeated whole: the names make that safe."""
    for attempt in range(TRIES):
        try:
            with connection.transaction():
                return ask(connection, invoice, amount, iban)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            if attempt == TRIES - 1:
                raise
            time.sleep(0.1 * 2**attempt)


def main(invoice, amount, iban):
    # Without a threshold no statement gets a name, which a transaction pooler would lose. Leave it out on a direct connection.
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=None) as connection:
        first, known = pay(connection, invoice, amount, iban)
        print(f"{'known already' if known else 'new'}: {first}")

        # Did the COMMIT's answer get lost? Do it all again.
        again, known = pay(connection, invoice, amount, iban)
        expect(known and again == first, "the same request is the same payment")
        print(f"known already: {again}")

        # The same name for another request: refused, and the invoice's new amount is rolled back with it.
        try:
            pay(connection, invoice, "0.01", iban)
            expect(False, "another request under the same name is refused")
        except psycopg.Error as error:
            expect(error.sqlstate == "P7004", f"P7004 and not {error.sqlstate}")
            print(f"refused: {error.sqlstate}")

        # A transaction that is rolled back leaves nothing: the second time everything is new again.
        for _ in range(2):
            with connection.transaction():
                _, known = ask(connection, f"{invoice}-cancelled", amount, iban)
                expect(not known, "nothing is left of a rolled back transaction")
                raise psycopg.Rollback()
        print("rolled back: nothing is left")


def expect(holds, claim):
    if not holds:
        sys.exit(f"expected: {claim}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
