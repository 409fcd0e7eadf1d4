"""An older backup takes the place of the database, when the bank has forgotten the keys of what was sent since."""

import time
from pathlib import Path

from cluster import Cluster
from product import Payment, Rail, enqueue, payments, pause_until, settle_parked, wait_for_drain
from stage import Stage
from verdict import Report, judge

RAILS = ("keyed", "asked", "silent")
HOUR = 3_600
# How long the worker is watched doing nothing: several polls, repairs and full looks.
WATCH_SECONDS = 3.0


def three_ways(stage: Stage, report: Report) -> None:
    """A backup of two hours ago, restored three ways, one disaster after the other; a person decides each time."""
    if stage.clocks.library is None:
        report.figure("passed over", "no C compiler here for servers of a later hour")
        return
    bank = stage.bank(key_lifetime_seconds=HOUR // 2)
    config = stage.product.configure({name: Rail(bank, name, HOUR // 2) for name in RAILS})
    primary = stage.primary()
    count = 8 if stage.short else 85
    done, pending = before_the_backup(stage, primary, config, count)
    primary.base_backup(stage.folder / "base")
    primary.dump_to(stage.folder / "dump.sql")
    primary.stop()
    primary.copy_to(stage.folder / "cold")

    # An hour passes; all of it is sent; another hour passes, and the bank has forgotten the keys.
    bank.ahead_seconds = HOUR
    primary.start(stage.clocks.ahead(HOUR))
    later = after_the_backup(stage, primary, config, count)
    primary.kill()
    bank.ahead_seconds = 2 * HOUR
    report.figure("pending in the backup", len(pending))
    report.figure("asked after the backup", len(later))

    asked = done + pending + later
    clock = stage.clocks.ahead(2 * HOUR)
    for way in (files_copied_back, base_backup_promoted, dump_loaded):
        server = way(stage, primary.port, clock)
        disaster(stage, report, way.__name__.replace("_", " "), server, config, asked)
        if way is not dump_loaded:
            server.kill()
    judge(report, asked, stage.banks, server)


def at_once(stage: Stage, report: Report) -> None:
    """The files of some seconds ago are copied back: too little is lost to call a person, and nothing is paid twice."""
    lifetime = 3
    bank = stage.bank(key_lifetime_seconds=lifetime)
    config = stage.product.configure({name: Rail(bank, name, lifetime) for name in RAILS})
    primary = stage.primary()
    count = 5 if stage.short else 50
    done, pending = before_the_backup(stage, primary, config, count)
    primary.stop()
    primary.copy_to(stage.folder / "cold")
    primary.start()
    later = after_the_backup(stage, primary, config, count)
    primary.kill()
    pause_until(time.time() + lifetime + 0.5)

    asked = done + pending + later
    server = files_copied_back(stage, primary.port, {})
    executed = len(bank.executions)
    worker = stage.product.work(server.url("worker"), config)
    enqueue(lambda sql: server.sql(sql, "producer"), asked)
    settle(stage, report, "files copied back", server)
    worker.stop()
    report.quote("the worker", unusual(worker.said()))
    report.figure("paid again", len(bank.executions) - executed)
    judge(report, asked, stage.banks, server)


def before_the_backup(stage: Stage, primary: Cluster, config: Path, count: int) -> tuple[list[Payment], list[Payment]]:
    """What the backup knows: some payments that have ended, others that wait."""
    worker = stage.product.work(primary.url("worker"), config)
    done, pending = payments("done", 3, *RAILS), payments("pending", count, *RAILS)
    enqueue(lambda sql: primary.sql(sql, "producer"), done)
    wait_for_drain(primary)
    worker.stop()
    enqueue(lambda sql: primary.sql(sql, "producer"), pending)
    return done, pending


def after_the_backup(stage: Stage, primary: Cluster, config: Path, count: int) -> list[Payment]:
    """What it does not know: that the waiting ones were paid, and that there were others."""
    later = payments("later", count, *RAILS)
    enqueue(lambda sql: primary.sql(sql, "producer"), later)
    worker = stage.product.work(primary.url("worker"), config)
    wait_for_drain(primary)
    worker.stop()
    return later


def files_copied_back(stage: Stage, port: int, clock: dict[str, str]) -> Cluster:
    """The same system identifier and the same timeline: only a witness outside can tell."""
    return stage.own(Cluster(stage.folder / "cold", port)).start(clock)


def base_backup_promoted(stage: Stage, port: int, clock: dict[str, str]) -> Cluster:
    """The same system identifier on a new timeline."""
    restored = stage.own(Cluster(stage.folder / "base", port))
    restored.touch("standby.signal")
    restored.start(clock).promote()
    return restored


def dump_loaded(stage: Stage, port: int, clock: dict[str, str]) -> Cluster:
    """Another system identifier."""
    restored = stage.own(Cluster(stage.folder / "loaded", port).initialise()).start(clock)
    restored.load_from(stage.folder / "dump.sql")
    return restored


def disaster(stage: Stage, report: Report, way: str, server: Cluster, config: Path, asked: list[Payment]) -> None:
    """The worker sees the older database, a person looks and accepts, and everything settles."""
    bank = stage.banks[0]
    executed, sends = len(bank.executions), bank.count("send")
    report.words.append(f"--- {way}: {server.identity()}")
    worker = stage.product.work(server.url("worker"), config)
    # The producer asks again for half of it before anybody has looked, and for all of it afterwards.
    enqueue(lambda sql: server.sql(sql, "producer"), asked[::2])
    pause_until(time.time() + WATCH_SECONDS)
    sent = bank.count("send") - sends
    report.claim(f"{way}: nothing is dispatched before a person has looked", sent == 0, f"{sent} requests were sent")
    report.quote("the worker", unusual(worker.said()))
    doctor = stage.product.command("doctor", url=server.url(), config=config)
    report.claim(f"{way}: doctor exits non-zero", doctor.code != 0, doctor.code)
    report.quote("doctor", "\n".join(line for line in doctor.text.splitlines() if not line.startswith("OK")))
    accept(stage, report, way, server, config)
    if not worker.alive():
        report.quote("the worker ended", worker.said()[-400:])
        worker = stage.product.work(server.url("worker"), config)
    enqueue(lambda sql: server.sql(sql, "producer"), asked)
    settle(stage, report, way, server)
    worker.stop()
    report.figure(f"{way}: paid again", len(bank.executions) - executed)


def accept(stage: Stage, report: Report, way: str, server: Cluster, config: Path) -> None:
    """What `symphony restore` says, and what it does."""
    url = server.url("operator")
    check = stage.product.command("restore", "check", "--json", url=url, config=config)
    report.claim(f"{way}: restore check says what it found", check.json() is not None, check.text)
    report.quote("restore check", check.text)
    act = ("restore", "accept", "--actor", "judge", "--reason", "restored from the backup")
    dry = stage.product.command(*act, url=url, config=config)
    report.quote("restore accept, dry", dry.text)
    done = stage.product.command(*act, "--yes", url=url, config=config)
    report.claim(f"{way}: restore accept is done", done.code == 0, done.text)
    report.quote("restore accept --yes", done.text)


def settle(stage: Stage, report: Report, way: str, server: Cluster) -> None:
    """The machine does what it can, a person the rest."""
    wait_for_drain(server, 120)
    report.figure(f"{way}: left to a person", settle_parked(server, stage.banks))
    wait_for_drain(server)


def unusual(log: str) -> str:
    """What a log says besides the routine."""
    return "\n".join(line for line in log.splitlines() if " INFO " not in line)
