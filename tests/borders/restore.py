"""An older backup takes the place of the database, long after the bank has forgotten the keys."""

import time
from pathlib import Path

from cluster import Cluster
from product import Payment, Rail, enqueue, payments, pause_until, settle_parked, wait_for_drain
from stage import Stage
from verdict import Report, judge

KEY_LIFETIME_SECONDS = 3
RAILS = ("keyed", "asked", "silent")
# How long the worker is watched doing nothing: several polls, repairs and full looks.
WATCH_SECONDS = 3.0


def three_ways(stage: Stage, report: Report) -> None:
    """The same backup moment, restored three ways, one disaster after the other."""
    count = 8 if stage.short else 80
    bank = stage.bank(key_lifetime_seconds=KEY_LIFETIME_SECONDS)
    rails = {name: Rail(bank, name, KEY_LIFETIME_SECONDS) for name in RAILS}
    config = stage.product.configure(rails)
    primary = stage.primary()
    worker = stage.product.work(primary.url("worker"), config)

    done = payments("done", 3, *RAILS)
    enqueue(lambda sql: primary.sql(sql, "producer"), done)
    wait_for_drain(primary)
    worker.stop()
    pending = payments("pending", count, *RAILS)
    enqueue(lambda sql: primary.sql(sql, "producer"), pending)
    backups = take_backups(stage, primary)

    worker = stage.product.work(primary.url("worker"), config)
    later = payments("later", count, *RAILS)
    enqueue(lambda sql: primary.sql(sql, "producer"), later)
    wait_for_drain(primary)
    worker.stop()
    pause_until(time.time() + KEY_LIFETIME_SECONDS + 0.5)
    report.figure("pending in the backup", len(pending))
    report.figure("asked after the backup", len(later))

    asked = done + pending + later
    primary.kill()
    server = primary
    for way, restored in backups.items():
        server = restored()
        disaster(stage, report, way, server, config, asked)
        server.kill()
    server.start()
    judge(report, asked, stage.banks, server)


def take_backups(stage: Stage, primary: Cluster) -> dict:
    """One moment, three backups; each is restored by a function of its own, under the old address."""
    primary.base_backup(stage.folder / "base")
    primary.dump_to(stage.folder / "dump.sql")
    primary.stop()
    primary.copy_to(stage.folder / "cold")
    primary.start()

    def files_copied_back() -> Cluster:
        return stage.own(Cluster(stage.folder / "cold", primary.port)).start()

    def base_backup_promoted() -> Cluster:
        restored = stage.own(Cluster(stage.folder / "base", primary.port))
        restored.touch("standby.signal")
        restored.start().promote()
        return restored

    def dump_loaded() -> Cluster:
        restored = stage.own(Cluster(stage.folder / "loaded", primary.port).initialise()).start()
        restored.load_from(stage.folder / "dump.sql")
        return restored

    return {"files copied back": files_copied_back, "base backup": base_backup_promoted, "dump": dump_loaded}


def disaster(stage: Stage, report: Report, way: str, server: Cluster, config: Path, asked: list[Payment]) -> None:
    """The worker sees the older database, a person looks and accepts, and everything settles."""
    bank = stage.banks[0]
    executions_before = len(bank.executions)
    sends_before = bank.count("send")
    report.words.append(f"--- {way}: {server.identity()}")
    worker = stage.product.work(server.url("worker"), config)
    # The producer asks again for half of it before anybody has looked, and for all of it afterwards.
    enqueue(lambda sql: server.sql(sql, "producer"), asked[::2])
    pause_until(time.time() + WATCH_SECONDS)
    sent = bank.count("send") - sends_before
    report.claim(f"{way}: nothing is dispatched before a person has looked", sent == 0, f"{sent} requests were sent")
    report.quote("the worker", "\n".join(line for line in worker.said().splitlines() if "INFO" not in line))

    doctor = stage.product.command("doctor", url=server.url(), config=config)
    report.claim(f"{way}: doctor exits non-zero", doctor.code != 0, doctor.code)
    report.quote("doctor", "\n".join(line for line in doctor.text.splitlines() if "ok" not in line))
    accept(stage, report, way, server, config)
    if not worker.alive():
        report.quote("the worker ended", worker.said()[-400:])
        worker = stage.product.work(server.url("worker"), config)
    enqueue(lambda sql: server.sql(sql, "producer"), asked)
    wait_for_drain(server, 120)
    people = settle_parked(server, stage.banks)
    wait_for_drain(server)
    worker.stop()
    report.figure(f"{way}: paid again", len(bank.executions) - executions_before)
    report.figure(f"{way}: left to a person", people)


def accept(stage: Stage, report: Report, way: str, server: Cluster, config: Path) -> None:
    """What `symphony restore` says, and what it does."""
    url = server.url("operator")
    check = stage.product.command("restore", "check", "--json", url=url, config=config)
    report.claim(f"{way}: restore check says what it found", check.json() is not None, check.text[-200:])
    report.quote("restore check", check.text)
    act = ("restore", "accept", "--actor", "judge", "--reason", "restored from the backup")
    dry = stage.product.command(*act, url=url, config=config)
    report.quote("restore accept, dry", dry.text)
    done = stage.product.command(*act, "--yes", url=url, config=config)
    report.claim(f"{way}: restore accept is done", done.code == 0, done.text[-200:])
    report.quote("restore accept --yes", done.text)
