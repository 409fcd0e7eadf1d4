"""A producer in Python with SQLAlchemy 2: invoice, payment and event commit together, or not at all.

    python3 examples/python/producer_sqlalchemy.py INVOICE AMOUNT IBAN      (DATABASE_URL; see examples/README.md)
"""

import os
import sys

from sqlalchemy import bindparam, create_engine, make_url, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError

INVOICE = text(
    """INSERT INTO public.example_invoices (id, amount, state) VALUES (:id, CAST(:amount AS numeric), 'paying')
       ON CONFLICT (id) DO UPDATE SET amount = excluded.amount RETURNING event_id, occurred_at"""
)
# Typed as JSONB, so that a dict can be bound.
PAYMENT = text(
    """SELECT outbox_id, duplicate FROM symphony.enqueue_payment_outbox(p_instruction_id => :instruction,
           p_participant_id => :participant, p_idempotency_key => :key, p_rail_type => :rail, p_payload => :payload)"""
).bindparams(bindparam("payload", type_=JSONB))
EVENT = text("SELECT duplicate FROM symphony.enqueue_event_outbox(p_event => :event)").bindparams(
    bindparam("event", type_=JSONB)
)


def ask(connection, invoice, amount, iban):
    """Inside the caller's transaction: first the caller's own state, then the payment and the event, which lock."""
    stored = connection.execute(INVOICE, {"id": invoice, "amount": amount}).one()
    money = {"value": amount, "currency": "EUR"}  # a text: a float would change it
    payment = connection.execute(
        PAYMENT,
        {
            "instruction": invoice,
            "participant": "acme",
            "key": "pay",
            "rail": "sepa",
            "payload": {"amount": money, "destination": {"iban": iban}},
        },
    ).one()
    event = {
        "envelope": {
            "v": 1,
            "eventId": str(stored.event_id),
            "occurredAt": stored.occurred_at,
            "tenantId": "tnt_1",
            "type": "events.invoices.paying",
        },
        "key": {"invoiceId": invoice},  # events of one invoice are published in order
        "payload": {"invoiceId": invoice, "amount": money},  # ids and figures, never personal data
    }
    told = connection.execute(EVENT, {"event": event}).one()
    expect(told.duplicate == payment.duplicate, "payment and event are new together, or known together")
    return payment


def pay(engine, invoice, amount, iban):
    """One business transaction: begin() commits at its end, and rolls back on an exception."""
    with engine.begin() as connection:
        return ask(connection, invoice, amount, iban)


def main(invoice, amount, iban):
    engine = create_engine(
        # psycopg 3. The default, psycopg2, writes values into the SQL, and so into the server's log.
        make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg"),
        # Otherwise the text of an exception has the payload in it.
        hide_parameters=True,
        # Without a threshold no statement gets a name, which a transaction pooler would lose.
        connect_args={"prepare_threshold": None},
    )
    first = pay(engine, invoice, amount, iban)
    print(f"{'known already' if first.duplicate else 'new'}: {first.outbox_id}")

    # Did the COMMIT's answer get lost? Do it all again.
    again = pay(engine, invoice, amount, iban)
    expect(again.duplicate and again.outbox_id == first.outbox_id, "the same request is the same payment")
    print(f"known already: {again.outbox_id}")

    # The same name for another request: refused, and the invoice's new amount is rolled back with it.
    try:
        pay(engine, invoice, "0.01", iban)
        expect(False, "another request under the same name is refused")
    except DBAPIError as error:
        expect(error.orig.sqlstate == "P7004", f"P7004 and not {error.orig.sqlstate}")
        expect(iban not in str(error), "an error does not tell the payload")
        print(f"refused: {error.orig.sqlstate}")

    # A transaction that is rolled back leaves nothing: the second time everything is new again.
    for _ in range(2):
        with engine.connect() as connection:
            cancelled = ask(connection, f"{invoice}-cancelled", amount, iban)
            expect(not cancelled.duplicate, "nothing is left of a rolled back transaction")
            connection.rollback()
    print("rolled back: nothing is left")


def expect(holds, claim):
    if not holds:
        sys.exit(f"expected: {claim}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
