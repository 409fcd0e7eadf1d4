"""How the judge drives the product: its command line, its configuration file and its SQL functions, as documented."""

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from cluster import DATABASE, Cluster, end_with_us, wait_until
from provider import CAN_BE_ASKED, DEDUPLICATES, Bank

# The logins, each with exactly the grant that docs/OPERATING.md gives to its kind.
LOGINS = {"producer": "symphony_ingest", "worker": "symphony_executor", "operator": "symphony_operator"}
IBAN = "DE89370400440532013000"
SETTLE_SECONDS = 1


@dataclass
class Answer:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both streams, for people."""
        return "\n".join(part.strip() for part in (self.out, self.err) if part.strip())

    def json(self) -> dict | list | None:
        """The document it printed; None where it printed none."""
        try:
            return json.loads(self.out)
        except json.JSONDecodeError:
            return None


@dataclass
class Rail:
    """One `[rails.NAME]` section that leads to an entry of a bank."""

    bank: Bank
    entry: str
    key_lifetime_seconds: int = 86_400
    extra: str = ""
    previous: list["Rail"] = field(default_factory=list)
    address: str = ""  # another way to the bank than its own address

    def endpoint(self) -> str:
        """Where payments go and where they are asked about."""
        base = f"http://{self.address or self.bank.address}/{self.entry}/transfers"
        lines = [f'url = "{base}"']
        if CAN_BE_ASKED[self.entry]:
            lines.append(f'inquiry_url = "{base}/{{key}}"')
        return "\n".join(lines)

    def terms(self) -> str:
        """What the provider's contract promises."""
        if DEDUPLICATES[self.entry]:
            return f"key_lifetime_seconds = {self.key_lifetime_seconds}"
        if CAN_BE_ASKED[self.entry]:
            return f'not_found = "final"\nnot_found_code = "NO_SUCH_KEY"\nsettle_delay_seconds = {SETTLE_SECONDS}'
        return ""

    def fields(self) -> str:
        """Everything of the section; an earlier endpoint is a whole section, too."""
        return (
            'kind = "http"\ndestination = "iban"\nallow_private_addresses = true\n'
            f"timeout_ms = 2_000\ninquiry_timeout_ms = 2_000\n{self.endpoint()}\n{self.terms()}\n{self.extra}\n"
        )

    def section(self, name: str) -> str:
        """The whole section, earlier endpoints included."""
        earlier = "".join(f"[[rails.{name}.previous]]\n{rail.fields()}" for rail in self.previous)
        return f"[rails.{name}]\n{self.fields()}{earlier}"


class WorkerEnded(Exception):
    """What a worker said that should have gone on."""


class Product:
    """The binary, and a folder for its configuration and logs."""

    def __init__(self, binary: Path, folder: Path):
        self.binary = binary
        self.folder = folder
        self.workers: list[Worker] = []
        self.environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
        self.has_witness = "witness" in self.command("config", url="").out

    def configure(self, rails: dict[str, Rail], name: str = "symphony", lease_seconds: int = 5) -> Path:
        """Write a symphony.toml with these rails."""
        text = (
            self.database_section()
            + f"[worker]\nlease_seconds = {lease_seconds}\nlease_margin_ms = 500\nshutdown_seconds = 5\n"
            + '[api]\nlisten = "off"\n' + "".join(rail.section(rail_name) for rail_name, rail in rails.items())
        )
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def database_section(self) -> str:
        """The witness is kept where no restored backup reaches it, and no other scenario."""
        return f'[database]\nwitness = "{self.folder}/witness"\n' if self.has_witness else ""

    def command(self, *arguments: str, url: str, config: Path | None = None) -> Answer:
        """Run one command to its end."""
        line = [str(self.binary), *arguments, *(["--database-url", url] if url else [])]
        if config is not None:
            line += ["--config", str(config)]
        done = subprocess.run(line, cwd=self.folder, env=self.environment, text=True, capture_output=True, timeout=120)
        return Answer(done.returncode, done.stdout, done.stderr)

    def work(self, url: str, config: Path, environment: dict[str, str] | None = None) -> "Worker":
        """Start `symphony run`; fails with its own words if it ends at once."""
        worker = Worker(self, url, config, environment or {})
        self.workers.append(worker)
        wait_until(lambda: not worker.alive() or "working" in worker.said(), 20, "the worker works or says why not")
        if not worker.alive():
            raise WorkerEnded(worker.said().strip())
        return worker

    def install(self, cluster: Cluster) -> None:
        """Database, schema and logins, as docs/OPERATING.md says."""
        cluster.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
        answer = self.command("migrate", url=cluster.url())
        if answer.code != 0:
            raise RuntimeError(f"migrate failed: {answer.text}")
        for statement in create_logins():
            cluster.sql(statement)

    def end(self) -> None:
        """Nothing of ours runs on."""
        for worker in self.workers:
            worker.kill()


def create_logins() -> list[str]:
    """The logins and their one role each."""
    return [f"CREATE ROLE {login} LOGIN; GRANT {role} TO {login};" for login, role in LOGINS.items()]


class Worker:
    """A `symphony run` process."""

    def __init__(self, product: Product, url: str, config: Path, environment: dict[str, str]):
        self.log = product.folder / f"worker-{len(product.workers) + 1}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [str(product.binary), "run", "--lanes", "payments", "--database-url", url, "--config", str(config)],
                cwd=product.folder, env={**product.environment, **environment}, preexec_fn=end_with_us,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )

    def said(self) -> str:
        """Its log, without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text())

    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        if self.alive():
            self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9

    def kill(self) -> None:
        """SIGKILL."""
        if self.alive():
            self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Payment:
    """What the producer wants; it keeps its own list, as a producer's invoices would."""

    instruction: str
    rail: str
    cents: int

    @property
    def amount(self) -> str:
        """As a decimal string."""
        return f"{self.cents // 100}.{self.cents % 100:02}"

    def arguments(self) -> list[str]:
        """The arguments of `enqueue_payment_outbox`, quoted for SQL."""
        payload = {
            "amount": {"value": self.amount, "currency": "EUR"}, "destination": {"iban": IBAN},
            "instruction": self.instruction,
        }
        participant = f"participant-{self.cents % 7}"
        return [quote(text) for text in (self.instruction, participant, "pay", self.rail, json.dumps(payload))]


def payments(prefix: str, count: int, *rails: str) -> list[Payment]:
    """So many payments on each of the rails, with amounts that differ."""
    return [
        Payment(f"{prefix}-{rail}-{number}", rail, 1_000 + 37 * number)
        for rail in rails for number in range(1, count + 1)
    ]


def enqueue(run, wanted: list[Payment]) -> int:
    """Ask for payments; `run` executes SQL as the producer. Answers how many were known already."""
    known = 0
    for start in range(0, len(wanted), 500):
        columns = zip(*(payment.arguments() for payment in wanted[start : start + 500]))
        types = ["text[]", "text[]", "text[]", "text[]", "jsonb[]"]
        arrays = ", ".join(f"ARRAY[{', '.join(column)}]::{kind}" for column, kind in zip(columns, types))
        answer = run(
            "SELECT count(*) FILTER (WHERE duplicate), count(error_code), min(error_message)"
            f" FROM symphony.enqueue_payment_outbox_batch({arrays})"
        )
        duplicates, refused, message = answer.split("|")
        if refused != "0":
            raise RuntimeError(f"{refused} payments were refused: {message}")
        known += int(duplicates)
    return known


def quote(text: str) -> str:
    """A SQL string."""
    return "'" + text.replace("'", "''") + "'"


def live_items(cluster: Cluster) -> dict[str, int]:
    """What has not ended, by state."""
    rows = cluster.rows("SELECT state, count(*) FROM symphony.outbox_operational_status GROUP BY 1", "operator")
    return {state: int(count) for state, count in rows}


def drained(cluster: Cluster) -> bool:
    """Nothing is left that the machine could do by itself."""
    return all(state == "PARKED" for state in live_items(cluster))


def wait_for_drain(cluster: Cluster, seconds: float = 60) -> None:
    """The machine has done what it can."""
    wait_until(lambda: drained(cluster), seconds, lambda: f"the queue is drained or parked: {live_items(cluster)}", 0.2)


def settle_parked(cluster: Cluster, banks: list[Bank]) -> int:
    """The person on call: settles parked payments by what the banks' own records say. Answers how many."""
    executed: dict[str, str] = {}
    for bank in banks:
        for instruction, done in bank.executed().items():
            executed.setdefault(instruction, done[0]["reference"])
    parked = cluster.rows(
        "SELECT outbox_id, instruction_id FROM symphony.outbox_operational_status WHERE state = 'PARKED'", "operator"
    )
    # Here the person knows: the record is the bank's own.
    knowing = ", p_despite_unknown => true" if takes_despite_unknown(cluster) else ""
    statements = []
    for outbox_id, instruction in parked:
        reference = executed.get(instruction)
        resolution = f"'DISPATCHED', p_rail_reference => {quote(reference)}" if reference else "'RETRY'"
        statements.append(
            f"SELECT state_after FROM symphony.resolve_outbox(p_outbox_id => '{outbox_id}', p_resolution => {resolution},"
            " p_actor => 'judge', p_reason => 'by the record of the bank'"
            f"{knowing});"
        )
    if statements:
        cluster.sql("\n".join(statements), "operator")
    return len(parked)


def takes_despite_unknown(cluster: Cluster) -> bool:
    """Whether this product knows of acts against what is unknown; the first one judged did not."""
    query = "SELECT count(*) FROM pg_proc WHERE proname = 'resolve_outbox' AND 'p_despite_unknown' = ANY (proargnames)"
    return cluster.sql(query) != "0"


def pause_until(moment: float) -> None:
    """Let real time pass: a key expires, a lag grows."""
    time.sleep(max(0.0, moment - time.time()))
