"""A provider of the judge's own, written against docs/RAILS.md and docs/CONTRACT_PAYMENTS.md and nothing else of the project.

What it executed is in an append-only file, under the instruction that the payload names. So "paid twice" is decided by
what was asked for, and never by the key that a request carried.
"""

import json
import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from relay import join

# What an entry of the provider's API promises: whether it pays once per key, and whether it can be asked.
DEDUPLICATES = {"keyed": True, "silent": True, "asked": False, "blind": False}
CAN_BE_ASKED = {"keyed": True, "silent": False, "asked": True, "blind": False}


class Bank:
    """Executes transfers; its faults are switches that a scenario sets."""

    def __init__(self, folder: Path, name: str, key_lifetime_seconds: float = 86_400):
        self.name = name
        self.key_lifetime_seconds = key_lifetime_seconds
        self.record = folder / f"{name}.jsonl"
        self.lock = threading.Lock()
        self.executions: list[dict] = []
        self.requests: list[dict] = []
        self.ahead_seconds = 0  # its clock; keys expire by it
        self.lose_answers = False  # execute, then close the connection without a word
        self.fail_inquiries = False  # 503 to every inquiry
        self.open = threading.Event()  # cleared: a transfer waits at the door, not executed yet
        self.open.set()
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.bank = self
        self.address = "127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """No more answers: connections are refused from here on."""
        self.open.set()
        self.server.shutdown()
        self.server.server_close()

    # --- the API --------------------------------------------------------------------------------

    def transfer(self, entry: str, key: str, body: bytes) -> tuple[int, dict] | None:
        """Execute one transfer, or repeat the answer to a key that is still remembered. None: the answer is lost."""
        payload = json.loads(body)
        instruction = payload["instruction"]
        self.note("send", entry, key, instruction)
        self.open.wait()
        with self.lock:
            known = self.remembered(entry, key) if DEDUPLICATES[entry] else None
            if known and known["body"] != body.decode():
                return 422, {"code": "KEY_USED_FOR_ANOTHER"}
            executed = known or self.execute(entry, key, instruction, payload, body)
        if self.lose_answers:
            return None
        return 200, {"code": "ACSC", "reference": executed["reference"]}

    def inquiry(self, entry: str, key: str) -> tuple[int, dict]:
        """What became of a key. Unlike deduplication this does not end with the key's lifetime."""
        with self.lock:
            found = [done for done in self.executions if done["entry"] == entry and done["key"] == key]
        self.note("inquiry", entry, key, found[0]["instruction"] if found else None)
        if self.fail_inquiries:
            return 503, {"code": "TRY_LATER"}
        if not found or not CAN_BE_ASKED[entry]:
            return 404, {"code": "NO_SUCH_KEY"}
        return 200, {"code": "ACSC", "reference": found[0]["reference"]}

    def remembered(self, entry: str, key: str) -> dict | None:
        """The latest transfer under a key that has not expired."""
        oldest = time.time() + self.ahead_seconds - self.key_lifetime_seconds
        for done in reversed(self.executions):
            if done["entry"] == entry and done["key"] == key and done["at"] >= oldest:
                return done
        return None

    def execute(self, entry: str, key: str, instruction: str, payload: dict, body: bytes) -> dict:
        """Move the money: written to disk before anybody is told."""
        done = {
            "reference": f"{self.name}-{len(self.executions) + 1}", "at": time.time() + self.ahead_seconds,
            "entry": entry, "key": key, "instruction": instruction, "amount": payload["amount"]["value"],
            "body": body.decode(),
        }
        with open(self.record, "a") as file:
            file.write(json.dumps(done) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.executions.append(done)
        return done

    def note(self, kind: str, entry: str, key: str, instruction: str | None) -> None:
        """Every request, executed or not."""
        with self.lock:
            self.requests.append(
                {"kind": kind, "at": time.time(), "entry": entry, "key": key, "instruction": instruction}
            )

    # --- what the judge asks --------------------------------------------------------------------

    def executed(self) -> dict[str, list[dict]]:
        """Every execution on disk, by instruction."""
        found: dict[str, list[dict]] = {}
        if self.record.exists():
            for line in self.record.read_text().splitlines():
                done = json.loads(line)
                found.setdefault(done["instruction"], []).append(done)
        return found

    def count(self, kind: str, since: float = 0.0) -> int:
        """How many sends, or inquiries, have come in since a moment."""
        with self.lock:
            return sum(request["kind"] == kind and request["at"] >= since for request in self.requests)

    def first_send(self, instruction: str) -> float | None:
        """When a transfer for this instruction first arrived."""
        with self.lock:
            sends = (request for request in self.requests if request["kind"] == "send")
            return next((send["at"] for send in sends if send["instruction"] == instruction), None)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    bank: Bank

    def handle_error(self, request, client_address) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    """POST /ENTRY/transfers and GET /ENTRY/transfers/KEY."""

    protocol_version = "HTTP/1.1"
    # One write per answer: headers and body apart would wait for each other.
    wbufsize = -1

    def do_POST(self) -> None:
        entry = self.path.split("/")[1]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(self.server.bank.transfer(entry, self.headers["Idempotency-Key"], body))

    def do_GET(self) -> None:
        _, entry, _, key = self.path.split("/")
        self.answer(self.server.bank.inquiry(entry, key))

    def answer(self, answer: tuple[int, dict] | None) -> None:
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, document = answer
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """The record is the log."""


class Gate:
    """A way to a bank whose queue of connections is full until `let_in`: whoever connects is left waiting."""

    def __init__(self, bank: Bank):
        self.bank = bank
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        # The kernel keeps one connection more than it was told; then it answers no SYN any more.
        self.fillers = [socket.create_connection(("127.0.0.1", self.port), 1)]

    def waiting(self) -> int:
        """Connections to this port in the state SYN_SENT."""
        with open("/proc/net/tcp") as table:
            lines = [line.split() for line in table]
        return sum(fields[2].endswith(f":{self.port:04X}") and fields[3] == "02" for fields in lines)

    def let_in(self) -> None:
        """From here on everybody gets through to the bank."""
        for filler in self.fillers:
            filler.close()
        self.listener.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            join(client, int(self.bank.address.rpartition(":")[2]))
