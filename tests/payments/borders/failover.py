"""The primary is lost: an asynchronous standby that lagged takes over, or a synchronous one that did not."""

import shutil
import time

from cluster import Cluster, psql, wait_until
from product import Rail, Worker, WorkerEnded, enqueue, payments, pause_until, settle_parked, wait_for_drain
from relay import Relay
from stage import Stage, hosts_url
from verdict import Report, judge

LAG_SECONDS = 2.0


def asynchronous(stage: Stage, report: Report) -> None:
    """2 s of lag: what was asked for and sent in it never happened, as far as the new primary knows."""
    lagging(stage, report, host_lost=False)


def host_lost(stage: Stage, report: Report) -> None:
    """The same, and the worker and its witness were on the host that is gone."""
    lagging(stage, report, host_lost=True)


def lagging(stage: Stage, report: Report, host_lost: bool) -> None:
    """The standby is cut off, 2 s pass in which payments are asked for and sent, the primary dies."""
    count = 10 if stage.short else 150
    bank = stage.bank()
    primary = stage.primary()
    standby = stage.standby(primary)
    config = stage.product.configure({"keyed": Rail(bank, "keyed"), "asked": Rail(bank, "asked")})

    done = payments("done", count // 2, "keyed", "asked")
    worker, url = start_on_several_hosts(stage, report, config, primary, standby)
    enqueue(lambda sql: primary.sql(sql, "producer"), done)
    wait_for_drain(primary)
    worker.stop()

    # Known to the standby as pending, and sent only while it lags.
    sent_in_lag = payments("sent-in-lag", count, "keyed", "asked")
    enqueue(lambda sql: primary.sql(sql, "producer"), sent_in_lag)
    primary.wait_for_standby()
    standby.lose_primary()
    lag_began = time.time()
    worker = stage.product.work(url, config)
    # Unknown to the standby altogether.
    asked_in_lag = payments("asked-in-lag", count, "keyed", "asked")
    enqueue(lambda sql: primary.sql(sql, "producer"), asked_in_lag)
    wait_for_drain(primary)
    pause_until(lag_began + LAG_SECONDS)
    # One more that the bank has and the worker has no answer to when the primary goes.
    in_flight = payments("in-flight", 1, "keyed", "asked")
    bank.open.clear()
    enqueue(lambda sql: primary.sql(sql, "producer"), in_flight)
    wait_until(lambda: all(bank.first_send(p.instruction) for p in in_flight), 30, "the bank has what is in flight")
    primary.kill()
    if host_lost:
        worker.kill()
        shutil.rmtree(stage.folder / "witness", ignore_errors=True)
    report.figure("lag", f"{time.time() - lag_began:.1f} s")
    report.figure("executed before the switch", len(bank.executions))
    bank.open.set()

    inquiries_before = bank.count("inquiry")
    standby.promote()
    worker = follow(stage, worker, url, config, standby)
    lost_rows = 2 * count + 2 - count_rows(standby, "asked-in-lag", "in-flight")
    report.figure("rows lost", lost_rows)
    report.claim("the standby had lost what this is about", lost_rows == 2 * count + 2, lost_rows)
    # The producer finds its invoices unpaid and asks again, with the same keys.
    asked = done + sent_in_lag + asked_in_lag + in_flight + payments("after", 5, "keyed", "asked")
    report.figure("asked again, not known", len(asked) - 10 - enqueue(lambda sql: standby.sql(sql, "producer"), asked))
    wait_for_drain(standby, 120)
    people = settle_parked(standby, stage.banks)
    wait_for_drain(standby)
    report.figure("inquiries", bank.count("inquiry") - inquiries_before)
    report.figure("left to a person", people)
    report.quote("the worker", switch_words(worker))
    judge(report, asked, stage.banks, standby)


def synchronous(stage: Stage, report: Report) -> None:
    """Several hosts in the URL; the worker finds the one that takes writes."""
    many_failovers(stage, report, None)


def one_address(stage: Stage, report: Report) -> None:
    """One address that leads to whoever is the primary, as a proxy or a floating address does."""
    many_failovers(stage, report, Relay(0))


def unfenced(stage: Stage, report: Report) -> None:
    """The standby is promoted, and the old primary, named first, goes on taking writes: it is left."""
    count = 10 if stage.short else 100
    bank = stage.bank()
    primary = stage.primary()
    standby = stage.standby(primary)
    config = stage.product.configure({"keyed": Rail(bank, "keyed"), "asked": Rail(bank, "asked")})
    worker, url = start_on_several_hosts(stage, report, config, primary, standby)
    before = payments("before", count, "keyed", "asked")
    enqueue(lambda sql: primary.sql(sql, "producer"), before)
    wait_for_drain(primary)
    primary.wait_for_standby()
    standby.promote()
    promoted_at = time.time()
    # A producer that has not noticed yet, and asks again where it belongs.
    strayed = payments("strayed", count, "keyed", "asked")
    enqueue(lambda sql: primary.sql(sql, "producer"), strayed)
    asked = before + strayed + payments("after", count, "keyed", "asked")
    enqueue(lambda sql: standby.sql(sql, "producer"), asked)
    wait_for_drain(standby, 60)
    report.figure("all paid after the promotion", f"{time.time() - promoted_at:.1f} s")
    report.claim("the old primary still takes writes", primary.writable())
    # Whoever comes now finds the new one, too.
    named = stage.product.command("status", "--json", url=hosts_url("operator", primary, standby))
    found = (named.json() or {}).get("database", {})
    report.claim("a command started now asks the new primary", str(standby.port) in str(found), found)
    report.claim("the worker went on by itself", worker.alive())
    settle_parked(standby, stage.banks)
    report.quote("the worker", switch_words(worker))
    judge(report, asked, stage.banks, standby)


def many_failovers(stage: Stage, report: Report, relay: Relay | None) -> None:
    """Nothing is lost, so nothing is asked, nobody is called, and payments flow on within 2 s; many times in a row."""
    bank = stage.bank()
    primary = stage.primary()
    standby = stage.standby(primary)
    primary.make_synchronous()
    config = stage.product.configure({"keyed": Rail(bank, "keyed")}, lease_seconds=12)
    if relay is None:
        worker, url = start_on_several_hosts(stage, report, config, primary, standby)
    else:
        relay.lead_to(primary.port)
        url = f"postgres://worker@127.0.0.1:{relay.port}/app"
        worker = stage.product.work(url, config)
    producer = hosts_url("producer", primary, standby)

    asked, gaps, restarts = [], [], 0
    for number in range(1, stage.failovers + 1):
        # Commits have waited for the standby for some time: nobody can be in doubt about that.
        pause_until(time.time() + 2)
        before = payments(f"before-{number}", 10, "keyed")
        enqueue(lambda sql: psql(producer, sql), before)
        primary.kill()
        standby.promote()
        if relay is not None:
            relay.lead_to(standby.port)
        writable_at = time.time()
        if not worker.alive():
            worker = follow(stage, worker, url, config, standby)
            restarts += 1
        probe = payments(f"probe-{number}", 1, "keyed")
        enqueue(lambda sql: psql(standby.url("producer"), sql), probe)
        try:
            wait_until(lambda: bank.first_send(probe[0].instruction), 15, "the probe is sent", 0.01)
            gaps.append(bank.first_send(probe[0].instruction) - writable_at)
        except TimeoutError:
            gaps.append(15.0)
            worker.kill()
            worker = follow(stage, worker, url, config, standby)
            restarts += 1
        asked += before + probe
        # The lost host comes back as the standby, under its old address.
        primary, standby = standby, stage.standby(standby, f"standby-{number}", primary.port)
        primary.make_synchronous()
    wait_for_drain(primary, 60)
    people = settle_parked(primary, stage.banks)
    report.figure("failovers", stage.failovers)
    median = sorted(gaps)[len(gaps) // 2]
    report.figure("writable to first dispatch", f"median {median:.2f} s, longest {max(gaps):.2f} s")
    report.figure("inquiries", bank.count("inquiry"))
    report.figure("workers started again", restarts)
    report.figure("left to a person", people)
    # The short form runs beside other tests, on a machine that has no time to spare.
    most = 10.0 if stage.short else 2.0
    report.claim(f"dispatch resumes within {most:g} s of a writable server", max(gaps) < most, f"{max(gaps):.2f} s")
    report.claim("it goes on by itself, in the same process", restarts == 0, f"{restarts} were started again")
    report.claim("no person is needed", people == 0, people)
    needless = bank.count("inquiry") - in_doubt(primary)
    report.claim("nothing is inquired needlessly", needless <= 0, needless)
    report.quote("the worker", switch_words(worker))
    judge(report, asked, stage.banks, primary)


def start_on_several_hosts(stage: Stage, report: Report, config, *clusters: Cluster) -> tuple[Worker, str]:
    """A worker that knows both servers; if it cannot, one that knows the first, and the report says so."""
    url = hosts_url("worker", *clusters)
    try:
        worker = stage.product.work(url, config)
        report.claim("several hosts in the URL work", True)
        return worker, url
    except WorkerEnded as error:
        report.claim("several hosts in the URL work", False, error)
    url = clusters[0].url("worker")
    return stage.product.work(url, config), url


def follow(stage: Stage, worker: Worker, url: str, config, cluster: Cluster) -> Worker:
    """The worker lives through the switch if it knows both servers; else it is started again on the new one."""
    if "," in url and worker.alive():
        return worker
    worker.stop()
    return stage.product.work(url if "," in url else cluster.url("worker"), config)


def count_rows(cluster: Cluster, *prefixes: str) -> int:
    """How many instructions of these names the server knows."""
    patterns = " OR ".join(f"instruction_id LIKE '{prefix}-%'" for prefix in prefixes)
    return int(cluster.sql(f"SELECT count(*) FROM symphony.payment_outbox_instructions WHERE {patterns}", "operator"))


def in_doubt(cluster: Cluster) -> int:
    """Ledger rows after which an inquiry is due: lost workers and unknown outcomes."""
    return int(
        cluster.sql(
            "SELECT count(*) FROM symphony.payment_outbox_attempts AS a WHERE state = 'ZOMBIE_REQUEUE'"
            " OR (state = 'RETRYABLE' AND to_jsonb(a)->>'unknown' = 'true')", "operator",
        )
    )


def switch_words(worker: Worker) -> str:
    """What the log says besides the routine."""
    return "\n".join(line for line in worker.said().splitlines() if "INFO" not in line or "server" in line)
