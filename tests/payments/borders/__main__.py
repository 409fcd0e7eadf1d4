"""The judge at the borders: what scripts/borders runs."""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.dont_write_bytecode = True

import endpoints
import failover
import operators
import restore
import suspended
from clocks import Clocks
from cluster import Cluster
from product import Product
from stage import Stage
from verdict import Report

SCENARIOS = {
    "failover-asynchronous": failover.asynchronous,
    "failover-host-lost": failover.host_lost,
    "failover-synchronous": failover.synchronous,
    "failover-one-address": failover.one_address,
    "failover-unfenced": failover.unfenced,
    "restore": restore.three_ways,
    "restore-at-once": restore.at_once,
    "changed-url": endpoints.changed_url,
    "two-configurations": endpoints.two_configurations,
    "suspended-worker": suspended.stopped_worker,
    "suspended-host": suspended.suspended_host,
    "two-mistakes": operators.two_mistakes,
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="borders", description=__doc__)
    parser.add_argument("--binary", type=Path, required=True)
    parser.add_argument("--postgres", type=Path, required=True, help="the folder of PostgreSQL's programs")
    parser.add_argument("--short", action="store_true", help="small counts, for every test run")
    parser.add_argument("--failovers", type=int, help="failovers in a row [default: 20; 3 with --short]")
    parser.add_argument("--jobs", type=int, help="scenarios at once [default: 1; 4 with --short]")
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="this scenario; may be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--verbose", action="store_true", help="print what the product said, also where all held")
    parser.add_argument("--keep", action="store_true", help="keep the folder: logs and records")
    return parser.parse_args()


def run_one(name: str, root: Path, options: argparse.Namespace) -> Report:
    """One scenario; what it could not do is a claim that did not hold."""
    report = Report(name)
    stage = Stage(root, name, options.binary.resolve(), options.short, options.failovers)
    began = time.monotonic()
    try:
        SCENARIOS[name](stage, report)
    except Exception as error:
        report.claim("the scenario came to its end", False, error)
        report.quote("the judge", traceback.format_exc(), 40)
        for worker in stage.product.workers[-2:]:
            report.quote(worker.log.name, "\n".join(worker.said().splitlines()[-8:]))
    finally:
        stage.end()
    report.seconds = time.monotonic() - began
    return report


def main() -> int:
    """Run the scenarios; 0 only if every claim held."""
    options = arguments()
    options.failovers = options.failovers or (3 if options.short else 20)
    Cluster.programs = options.postgres
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    root = Path(tempfile.mkdtemp(prefix="symphony-borders-"))
    os.chmod(root, 0o777)
    reports = []
    try:
        Stage.clocks = Clocks(root)
        Stage.template = Cluster(root / "template").initialise().start()
        Product(options.binary.resolve(), root).install(Stage.template)
        Stage.template.stop()
        with ThreadPoolExecutor(options.jobs or (4 if options.short else 1)) as pool:
            for report in pool.map(lambda name: run_one(name, root, options), options.only or SCENARIOS):
                reports.append(report)
                if not options.json:
                    print(report.text(options.verbose), flush=True)
    finally:
        if hasattr(Stage, "template"):
            Stage.template.kill()
        if options.keep:
            print(f"kept: {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)
    summary(reports, options.json)
    return 0 if all(report.holds for report in reports) else 1


def summary(reports: list[Report], as_json: bool) -> None:
    """The figures of all scenarios together."""
    total = {
        name: sum(int(report.figures.get(name, 0)) for report in reports)
        for name in ("asked", "executed", "paid twice", "lost")
    }
    failed = sum(not holds for report in reports for _, holds, _ in report.claims)
    if as_json:
        print(json.dumps({"scenarios": [report.document() for report in reports], **total, "failed claims": failed}))
        return
    seconds = sum(report.seconds for report in reports)
    print(", ".join(f"{name} {value}" for name, value in total.items()) + f"; {failed} claims failed; {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
