"""An OTLP collector, a bank, a webhook's receiver and a web service in one, written from the public documents alone: the
protobuf of OTLP is taken apart by hand. One JSON line is written for every span and for every call.

usage: receiver.py JOURNAL FOLDER CANARY
/v1/traces: takes spans; 503 while the file FOLDER/down exists.
/pay: a payment. "busy…" is answered 429 at the first try, "drop…" loses the connection, "echo…" is refused with all that was
sent, "noise…" is answered with that alone.
/hook: a webhook; 503 at the first try of the first 20, with all that was sent. /called/…: anything, answered with {}.
While the file FOLDER/hang exists, none of these three is answered.
"""
import json
import os
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

journal = open(sys.argv[1], "a", buffering=1)
folder = sys.argv[2]
canary = sys.argv[3].encode()
lock = threading.Lock()
tried = set()
executed = set()
refused = []


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data):
    """Number and value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif kind == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        elif kind == 5:
            value, at = struct.unpack_from("<I", data, at)[0], at + 4
        else:
            raise ValueError(f"wire type {kind}")
        yield number, value


def only(message, number):
    return [value for found, value in fields(message) if found == number]


def attributes(values):
    read = {}
    for value in values:
        name = only(value, 1)[0].decode()
        [(kind, held)] = fields(only(value, 2)[0])
        read[name] = held.decode() if kind == 1 else held
    return read


def span(data, resource, scope):
    one = {1: b"", 2: b"", 4: b"", 5: b"", 6: 0, 7: 0, 8: 0, 15: b""}
    one.update({number: value for number, value in fields(data) if number in one})
    status = dict(fields(one[15]))
    return {
        "trace": one[1].hex(), "id": one[2].hex(), "parent": one[4].hex(), "name": one[5].decode(), "kind": one[6],
        "start": one[7], "end": one[8], "attributes": attributes(only(data, 9)), "status": status.get(3, 0),
        "resource": resource, "scope": scope,
    }


def spans(data):
    for of_resource in only(data, 1):
        resource = attributes(only(only(of_resource, 1)[0], 1))
        for of_scope in only(of_resource, 2):
            scope = only(only(of_scope, 1)[0], 1)[0].decode()
            yield from (span(one, resource, scope) for one in only(of_scope, 2))


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, **what):
        with lock:
            journal.write(json.dumps(what) + "\n")

    def reply(self, status, body=b"{}", kind="application/json", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def call(self, body):
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.note(call=self.path, headers=headers, body=body.decode())

    def first(self, key):
        with lock:
            is_first = key not in tried
            tried.add(key)
            return is_first

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/v1/traces":
            if os.path.exists(os.path.join(folder, "down")):
                return self.reply(503, b"", "application/x-protobuf")
            has_canary = canary in body
            for one in spans(body):
                self.note(span=one, has_canary=has_canary, authorization=self.headers.get("Authorization"))
            return self.reply(200, b"", "application/x-protobuf")
        self.call(body)
        if os.path.exists(os.path.join(folder, "hang")):
            time.sleep(60)
        if self.path == "/pay":
            key, name = self.headers["Idempotency-Key"], self.headers["Symphony-Instruction-Id"]
            is_first = self.first(key)
            if name.startswith("busy") and is_first:
                return self.reply(429, Retry_After="1")
            if name.startswith("drop") and is_first:
                self.close_connection = True
                return self.connection.close()
            if name.startswith("echo"):
                return self.reply(400, json.dumps({"code": "AC04", "message": body.decode(), "detail": body.decode()}).encode())
            if name.startswith("noise") and is_first:
                return self.reply(500, body, "text/plain")
            executed.add(key)
            return self.reply(200, json.dumps({"code": "ACSC", "reference": "R-" + key[:8]}).encode())
        if self.path == "/hook" and len(refused) < 20 and self.first(self.headers["webhook-id"]):
            refused.append(self.headers["webhook-id"])
            return self.reply(503, body)
        self.reply(200)

    def do_GET(self):
        self.call(b"")
        if self.path.startswith("/pay/"):
            key = self.path.rsplit("/", 1)[1]
            if key in executed:
                return self.reply(200, json.dumps({"code": "ACSC", "reference": "R-" + key[:8]}).encode())
            return self.reply(404, b'{"code": "NOT_FOUND"}')
        self.reply(200)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A worker that was killed hears no answer."""


server = Server(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
