"""A worker stands still between its claim and its send for longer than its lease, while another one takes over."""

import shutil
import subprocess
import time
from pathlib import Path

from cluster import wait_until
from product import Rail, enqueue, live_items, payments, pause_until, settle_parked, wait_for_drain
from provider import Gate
from stage import Stage
from verdict import Report, judge

LEASE_SECONDS = 5
# Claims everything at once and sends one after the other: most of it is held and not sent yet.
SLOW = "rate_per_second = 2\nrate_burst = 1"


def stopped_worker(stage: Stage, report: Report) -> None:
    """SIGSTOP: the clocks run on, the process does not."""
    takes_over(stage, report, {}, lambda seconds: None)
    connecting(stage, report)


def suspended_host(stage: Stage, report: Report) -> None:
    """The host sleeps: its monotonic clock stands still with it, and the boot-time clock does not."""
    library, offset = build_clock(stage.folder)
    if library is None:
        report.figure("passed over", "no C compiler here for the clock that stands still")
        return
    environment = {"LD_PRELOAD": str(library), "JUDGE_MONOTONIC_BEHIND": str(offset)}
    takes_over(stage, report, environment, lambda seconds: offset.write_text(str(int(seconds * 1e9))))


def takes_over(stage: Stage, report: Report, environment: dict[str, str], slept) -> None:
    """One worker holds and waits, stands still; the other one waits for the lease's end and pays; the first wakes up."""
    count = 8 if stage.short else 40
    bank = stage.bank()
    server = stage.primary()
    names = ("keyed", "asked")
    slow = stage.product.configure({name: Rail(bank, name, extra=SLOW) for name in names}, "slow", LEASE_SECONDS)
    fast = stage.product.configure({name: Rail(bank, name) for name in names}, "fast", LEASE_SECONDS)
    asked = payments("held", count, *names)
    enqueue(lambda sql: server.sql(sql, "producer"), asked)
    sleeper = stage.product.work(server.url("worker"), slow, environment)
    wait_until(lambda: len(bank.executions) >= 2, 30, "the first ones are sent", 0.01)
    sleeper.pause()
    stopped_at = time.time()
    held = live_items(server).get("IN_FLIGHT", 0)
    report.figure("held and not sent", held)
    report.claim("it stood still between claim and send", held >= count, live_items(server))
    stage.product.work(server.url("worker"), fast)
    wait_for_drain(server, 60)
    woken_at = time.time()
    slept(woken_at - stopped_at)
    executed = len(bank.executions)
    sleeper.resume()
    pause_until(woken_at + LEASE_SECONDS)
    report.figure("stood still", f"{woken_at - stopped_at:.1f} s")
    sent = bank.count("send", woken_at)
    report.figure("sent after waking up", sent)
    report.claim("nothing is sent after the lease", sent == 0, f"{sent} were sent, {len(bank.executions) - executed} executed")
    report.quote("the sleeper", "\n".join(sleeper.said().splitlines()[-6:]))
    sleeper.stop()
    people = settle_parked(server, stage.banks)
    wait_for_drain(server)
    report.figure("left to a person", people)
    judge(report, asked, stage.banks, server)
    server.kill()


def connecting(stage: Stage, report: Report) -> None:
    """Stopped while it connects: the kernel finishes the connection meanwhile, and the request could leave at once."""
    bank = stage.bank("slow-to-connect")
    server = stage.own(stage.template.copy_to(stage.folder / "connecting")).start()
    gate = Gate(bank)
    rail = Rail(bank, "asked", extra="connect_timeout_ms = 2_000", address=gate.address)
    config = stage.product.configure({"asked": rail}, "gate", LEASE_SECONDS)
    asked = payments("connecting", 1, "asked")
    sleeper = stage.product.work(server.url("worker"), config)
    enqueue(lambda sql: server.sql(sql, "producer"), asked)
    wait_until(gate.somebody_waits, 30, "the worker is connecting", 0.01)
    sleeper.pause()
    gate.let_in()
    stage.product.work(server.url("worker"), config)
    wait_for_drain(server, 60)
    woken_at = time.time()
    sleeper.resume()
    pause_until(woken_at + 3)
    sent = bank.count("send", woken_at)
    report.claim("stopped while connecting: nothing is sent after the lease", sent == 0, f"{sent} requests were sent")
    report.quote("the sleeper", "\n".join(sleeper.said().splitlines()[-6:]))
    sleeper.stop()
    settle_parked(server, [bank])
    wait_for_drain(server)
    own = Report("connecting")
    judge(own, asked, [bank], server)
    report.claims += [(f"stopped while connecting: {text}", holds, why) for text, holds, why in own.claims]
    report.figures["paid twice"] += own.figures["paid twice"]


def build_clock(folder: Path) -> tuple[Path | None, Path]:
    """The preloaded clock, and the file that says by how much it is behind."""
    offset = folder / "behind"
    offset.write_text("0")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None, offset
    library = folder / "standing_clock.so"
    source = Path(__file__).with_name("standing_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library, offset
