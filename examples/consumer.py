#!/usr/bin/env python3
"""A consumer in Python behind `symphony consume`: keeps account balances, each event applied once.

    python3 examples/consumer.py --listen 127.0.0.1:8080 --database balances.db
    symphony consume --consumer balances --from nats:EVENTS --dead-letter dead.balances --to http://127.0.0.1:8080/events

An event can be posted more than once. So its id and its effect are written in one transaction: a repeated one
finds its id there and changes nothing. Only then is 204 answered, which acknowledges the message.
"""

import argparse
import json
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def apply(database, event):
    """True the first time, False if the event was applied before."""
    with sqlite3.connect(database, timeout=20, isolation_level="IMMEDIATE") as connection:
        event_id = event["envelope"]["eventId"].lower()
        first = connection.execute("INSERT OR IGNORE INTO applied VALUES (?)", (event_id,)).rowcount == 1
        if first:
            (account,) = event["key"].values()
            cents = int(event["payload"]["number"])
            connection.execute(
                "INSERT INTO balances VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET cents = cents + excluded.cents",
                (account, cents),
            )
        return first


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            first = apply(self.server.database, json.loads(body))
            self.answer(204)
            print("applied" if first else "known", self.headers["symphony-event-id"], flush=True)
        except Exception as error:  # whatever it is: not applied, so it must come again
            print(f"not applied: {type(error).__name__}", file=sys.stderr, flush=True)
            self.answer(500)

    def answer(self, status):
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", default="127.0.0.1:8080")
    parser.add_argument("--database", default="balances.db")
    options = parser.parse_args()
    with sqlite3.connect(options.database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS applied (event_id TEXT PRIMARY KEY)")
        connection.execute("CREATE TABLE IF NOT EXISTS balances (account TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
    host, port = options.listen.rsplit(":", 1)
    server = ThreadingHTTPServer((host, int(port)), Handler)
    server.database = options.database
    print(f"listening on {host}:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
