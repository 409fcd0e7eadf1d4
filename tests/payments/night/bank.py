"""A bank, written from docs/RAILS.md alone, with the standard library. It can be killed and started again.

usage: bank.py PORT RECORD
RECORD is its own book, one JSON line for each transfer it executed; a bank that is started again reads it. It executes every payment it is
sent, once per line: it does not deduplicate. A payment of an instruction named "inv-lost" is executed and its answer lost, and for
the rest of the night its inquiries do not find that one.
"""
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, record = int(sys.argv[1]), sys.argv[2]
lock = threading.Lock()
executed = {}
if os.path.exists(record):
    with open(record) as book:
        for line in book:
            entry = json.loads(line)
            executed[entry["key"]] = entry
book = open(record, "a", buffering=1)


class Bank(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        key, name = self.headers["Idempotency-Key"], self.headers["Symphony-Instruction-Id"]
        with lock:
            reference = "R-%d" % (len(executed) + 1)
            executed[key] = {"key": key, "reference": reference, "name": name}
            book.write(json.dumps(executed[key]) + "\n")
        if name == "inv-lost":
            self.close_connection = True
            self.connection.close()
        else:
            self.reply(200, {"code": "ACSC", "reference": reference})

    def do_GET(self):
        entry = executed.get(self.path.rsplit("/", 1)[1])
        if entry and entry["name"] != "inv-lost":
            self.reply(200, {"code": "ACSC", "reference": entry["reference"]})
        else:
            self.reply(404, {"code": "NOT_FOUND"})


class Server(ThreadingHTTPServer):
    allow_reuse_address = True


server = Server(("127.0.0.1", port), Bank)
print(server.server_port, flush=True)
server.serve_forever()
