#!/usr/bin/env python3
"""A consumer in Python with psycopg, behind `symphony consume`: keeps balances, each event applied once.

    python3 examples/python/consumer.py 127.0.0.1:8080      (DATABASE_URL; see examples/README.md)
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg


def apply(event):
    """The inbox row and the effect, in one transaction. False if the event was applied before."""
    # Leaving the block commits; an exception rolls back. A pool would do the same with fewer connections.
    with psycopg.connect(os.environ["DATABASE_URL"], prepare_threshold=None) as connection:
        (first,) = connection.execute(
            "SELECT symphony.record_event_inbox(p_consumer => %s, p_event_id => %s::uuid)",
            ("balances", event["envelope"]["eventId"]),
        ).fetchone()
        if first:
            (account,) = event["key"].values()
            cents = event["payload"]["cents"]
            if not isinstance(cents, int):
                raise ValueError("payload.cents is no whole number")
            connection.execute(
                """INSERT INTO public.example_balances AS b (account, cents) VALUES (%s, %s)
                   ON CONFLICT (account) DO UPDATE SET cents = b.cents + excluded.cents""",
                (account, cents),
            )
        return first


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            first = apply(json.loads(body))
        except psycopg.OperationalError:  # the database is away: nothing is wrong with the event
            self.answer(503)
        except Exception as error:  # not applied: it comes again, and in the end it is a dead letter
            print(f"not applied: {type(error).__name__}", file=sys.stderr, flush=True)
            self.answer(500)
        else:
            self.answer(204)  # only now, after the commit
            print("applied" if first else "known already", self.headers["symphony-event-id"], flush=True)

    def answer(self, status):
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    host, port = sys.argv[1].rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Handler)
    print(f"listening on {host}:{server.server_port}", flush=True)
    server.serve_forever()
