"""A bank of our own, written from docs/RAILS.md alone. It notes every call by its own clock, one JSON line each.

usage: provider.py JOURNAL SWITCHES
What it does is decided by the instruction's name: "drop…" loses the connection at the first try without executing, "busy…"
is answered 429 with Retry-After: 1 while the file SWITCHES/busy exists. Everything else is executed, once per key.
"""
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

journal = open(sys.argv[1], "a", buffering=1)
switches = sys.argv[2]
lock = threading.Lock()
executed = {}
tried = set()


class Bank(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, **what):
        journal.write(json.dumps({"at": time.monotonic(), **what}) + "\n")

    def reply(self, status, body, **headers):
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        key, name = self.headers["Idempotency-Key"], self.headers["Symphony-Instruction-Id"]
        with lock:
            first = key not in tried
            tried.add(key)
            busy = name.startswith("busy") and os.path.exists(os.path.join(switches, "busy"))
            dropped = name.startswith("drop") and first
            if not busy and not dropped:
                executed[key] = executed.get(key, 0) + 1
            self.note(call="send", name=name, key=key, executed=executed.get(key, 0))
        if busy:
            self.reply(429, {}, Retry_After="1")
        elif dropped:
            self.close_connection = True
            self.connection.close()
        else:
            self.reply(200, {"code": "ACSC", "reference": "R-" + key[:8]})

    def do_GET(self):
        key = self.path.rsplit("/", 1)[1]
        with lock:
            known = key in executed
            self.note(call="ask", name=self.headers.get("Symphony-Instruction-Id"), key=key, executed=executed.get(key, 0))
        if known:
            self.reply(200, {"code": "ACSC", "reference": "R-" + key[:8]})
        else:
            self.reply(404, {"code": "NOT_FOUND"})


server = ThreadingHTTPServer(("127.0.0.1", 0), Bank)
print(server.server_port, flush=True)
server.serve_forever()
