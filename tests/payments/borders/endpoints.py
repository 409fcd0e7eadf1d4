"""Another endpoint under the same rail name: after a change of configuration, and in two workers at once."""

import time

from product import Rail, enqueue, payments, pause_until, settle_parked, wait_for_drain, live_items
from cluster import wait_until
from stage import Stage
from verdict import Report, judge


def changed_url(stage: Stage, report: Report) -> None:
    """The old bank executed and its answer was lost; then the rail's url leads to a new bank."""
    count = 3 if stage.short else 25
    old, new = stage.bank("old"), stage.bank("new")
    kept, dropped = ("kept-keyed", "kept-asked"), ("dropped-keyed", "dropped-asked")
    entry = {name: name.rpartition("-")[2] for name in kept + dropped}
    config = stage.product.configure({name: Rail(old, entry[name]) for name in entry})
    server = stage.primary()
    old.lose_answers = old.fail_inquiries = True
    unknown = payments("unknown", count, *entry)
    enqueue(lambda sql: server.sql(sql, "producer"), unknown)
    worker = stage.product.work(server.url("worker"), config)
    wait_until(lambda: len(old.executed()) == len(unknown), 60, "the old bank has executed all of it")
    worker.stop()
    old.lose_answers = old.fail_inquiries = False

    # For two of the rails the configuration remembers where they led before.
    rails = {name: Rail(new, entry[name], previous=[Rail(old, entry[name])] if name in kept else []) for name in entry}
    config = stage.product.configure(rails)
    check = stage.product.command("config", "--check", url=server.url("worker"), config=config)
    if not report.claim("a rail can name its previous endpoint", check.code == 0, check.text[-200:]):
        config = stage.product.configure({name: Rail(new, entry[name]) for name in entry})
    switched_at = time.time()
    worker = stage.product.work(server.url("worker"), config)
    fresh = payments("fresh", 2, *entry)
    enqueue(lambda sql: server.sql(sql, "producer"), fresh)
    wait_for_drain(server, 90)
    parked = live_items(server).get("PARKED", 0)
    sent_anew = [name for name in new.executed() if name.startswith("unknown")]
    report.figure("unknown at the old bank", len(unknown))
    report.figure("asked at the old bank", old.count("inquiry", switched_at))
    report.figure("parked", parked)
    report.figure("sent to the new bank", len(sent_anew))
    report.claim("nothing unknown is sent to the new bank", not sent_anew, f"{len(sent_anew)} were")
    report.claim("what has no previous endpoint is parked", parked == 2 * count, parked)
    asked_about = old.count("inquiry", switched_at)
    report.claim("what has one is asked there", asked_about >= 2 * count, asked_about)
    report.claim("run says at start what it found", mentions(worker.said(), dropped), "its log names none of the rails")
    report.quote("the worker", "\n".join(worker.said().splitlines()[:12]))
    people = settle_parked(server, stage.banks)
    wait_for_drain(server)
    report.figure("left to a person", people)
    judge(report, unknown + fresh, stage.banks, server)


def mentions(log: str, rails: tuple[str, ...]) -> bool:
    """A line that is no routine names each of the rails."""
    lines = [line for line in log.splitlines() if "WARN" in line or "endpoint" in line]
    return all(any(rail in line for line in lines) for rail in rails)


def two_configurations(stage: Stage, report: Report) -> None:
    """Two workers disagree about where a rail leads, while one of the banks loses its answers."""
    count = 15 if stage.short else 100
    first, second = stage.bank("first"), stage.bank("second")
    server = stage.primary()
    names = ("keyed", "asked")
    one = stage.product.configure({name: Rail(first, name, extra="concurrency_max = 2") for name in names}, "one")
    two = stage.product.configure({name: Rail(second, name, extra="concurrency_max = 2") for name in names}, "two")
    first.lose_answers = first.fail_inquiries = True
    asked = payments("both", count, *names)
    workers = [stage.product.work(server.url("worker"), config) for config in (one, two)]
    enqueue(lambda sql: server.sql(sql, "producer"), asked)
    wait_until(lambda: first.executions and second.executions, 30, "both banks have executed something")
    # The one that learns nothing hands over to the other: its leases end, and so does it.
    pause_until(time.time() + 2)
    workers[0].kill()
    first.lose_answers = first.fail_inquiries = False
    wait_for_drain(server, 120)
    report.figure("executed by the first bank", len(first.executions))
    report.figure("executed by the second", len(second.executions))
    parked = live_items(server).get("PARKED", 0)
    report.figure("parked", parked)
    people = settle_parked(server, stage.banks)
    wait_for_drain(server)
    # A producer that asks again after everything changes nothing.
    known = enqueue(lambda sql: server.sql(sql, "producer"), asked)
    report.claim("everything is known when it is asked for again", known == len(asked), known)
    wait_for_drain(server)
    report.figure("left to a person", people)
    judge(report, asked, stage.banks, server)
