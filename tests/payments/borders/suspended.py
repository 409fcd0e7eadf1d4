"""A worker stands still between its claim and its send for longer than its lease, while another one takes over."""

import time

from cluster import wait_until
from product import Rail, enqueue, live_items, payments, pause_until, settle_parked, wait_for_drain
from provider import Gate
from stage import Stage
from verdict import Report, judge

LEASE_SECONDS = 5


def stopped_worker(stage: Stage, report: Report) -> None:
    """SIGSTOP: the clocks run on, the process does not."""
    wakes_up_late(stage, report, {}, lambda seconds: None)


def suspended_host(stage: Stage, report: Report) -> None:
    """The host sleeps: its monotonic clock stands still with it, and the boot-time clock does not."""
    if stage.clocks.library is None:
        report.figure("passed over", "no C compiler here for a clock that stands still")
        return
    behind = stage.folder / "behind"
    environment = stage.clocks.suspendable(behind)
    wakes_up_late(stage, report, environment, lambda seconds: behind.write_text(str(int(seconds * 1e9))))


def wakes_up_late(stage: Stage, report: Report, environment: dict[str, str], slept) -> None:
    """One worker has claimed and is connecting when it is stopped; the kernel finishes the connections meanwhile.

    The other one waits for the lease's end and pays. Then the first wakes up with open connections in its hands.
    """
    count = 3 if stage.short else 20
    bank = stage.bank()
    server = stage.primary()
    names = ("keyed", "asked")
    gate = Gate(bank)
    config = stage.product.configure({name: Rail(bank, name, address=gate.address) for name in names})
    asked = payments("held", count, *names)
    enqueue(lambda sql: server.sql(sql, "producer"), asked)
    sleeper = stage.product.work(server.url("worker"), config, environment)
    wait_until(lambda: gate.waiting() == len(asked), 30, "the worker is connecting for each", 0.01)
    sleeper.pause()
    stopped_at = time.time()
    held = live_items(server).get("IN_FLIGHT", 0)
    report.claim("it stood still between claim and send", held == len(asked), live_items(server))
    gate.let_in()
    stage.product.work(server.url("worker"), config)
    wait_for_drain(server, 60)
    wait_until(lambda: gate.waiting() == 0, 30, "the kernel has connected what the sleeper wanted")
    woken_at = time.time()
    slept(woken_at - stopped_at)
    sleeper.resume()
    pause_until(woken_at + LEASE_SECONDS)
    sent = bank.count("send", woken_at)
    report.figure("held and not sent", held)
    report.figure("stood still", f"{woken_at - stopped_at:.1f} s")
    report.figure("sent after waking up", sent)
    report.claim("nothing is sent after the lease", sent == 0, f"{sent} requests were sent")
    report.quote("the sleeper", "\n".join(sleeper.said().splitlines()[-6:]))
    sleeper.stop()
    people = settle_parked(server, stage.banks)
    wait_for_drain(server)
    report.figure("left to a person", people)
    judge(report, asked, stage.banks, server)

