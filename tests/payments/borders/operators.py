"""A person who makes two mistakes: calls an executed payment failed, and tries it again."""

from cluster import wait_until
from product import Answer, Rail, enqueue, live_items, payments, settle_parked, wait_for_drain
from stage import Stage
from verdict import Report, judge

REASON = ("--actor", "dana", "--reason", "the customer says that nothing came")


def two_mistakes(stage: Stage, report: Report) -> None:
    """The bank executed, its answer was lost and it cannot be asked: three ways to pay it again by hand."""
    bank = stage.bank()
    server = stage.primary()
    config = stage.product.configure({"blind": Rail(bank, "blind")})
    marks = ("rail", "blind", "--marks-sending", "true", "--yes")
    marked = stage.product.command(*marks, *REASON, url=server.url("operator"))
    report.claim("a rail that can do neither marks its sends", marked.code == 0, marked.text)
    bank.lose_answers = True
    asked = payments("answer-lost", 3, "blind")
    enqueue(lambda sql: server.sql(sql, "producer"), asked)
    stage.product.work(server.url("worker"), config)
    wait_until(lambda: live_items(server).get("PARKED", 0) == len(asked), 60, "the unknown ones are parked", 0.2)
    bank.lose_answers = False

    def act(*arguments: str) -> Answer:
        return stage.product.command(*arguments, *REASON, url=server.url("operator"))

    retried, failed, forced = (payment.instruction for payment in asked)
    dry = act("resolve", retried, "--as", "retry")
    report.quote("resolve --as retry, dry", dry.text)
    says_so(report, "the dry run of resolve --as retry", dry)
    done = act("resolve", retried, "--as", "retry", "--yes")
    refused(report, "resolve --as retry", done)

    dry = act("resolve", failed, "--as", "failed")
    report.quote("resolve --as failed, dry", dry.text)
    says_so(report, "the dry run of resolve --as failed", dry)
    first = act("resolve", failed, "--as", "failed", "--yes")
    report.quote("resolve --as failed --yes", first.text)
    dry = act("redrive", failed)
    report.quote("redrive, dry", dry.text)
    second = act("redrive", failed, "--yes")
    report.quote("redrive --yes", second.text)
    report.claim("both mistakes in a row are refused without --despite-unknown", second.code != 0, second.text[-200:])

    # The first mistake made with open eyes does not open the way for the second.
    first = act("resolve", forced, "--as", "failed", "--yes", "--despite-unknown")
    report.claim("resolve --as failed --despite-unknown is possible", first.code == 0, first.text[-200:])
    if first.code != 0:
        act("resolve", forced, "--as", "failed", "--yes")
    dry = act("redrive", forced)
    report.quote("redrive after --despite-unknown, dry", dry.text)
    says_so(report, "the dry run of redrive", dry)
    refused(report, "redrive after a forced resolve", act("redrive", forced, "--yes"))
    wait_for_drain(server)
    settle_parked(server, stage.banks)
    wait_for_drain(server)
    # Only the forced one may stand in the ledger as FAILED.
    judge(report, asked, stage.banks, server, said_failed={forced})


def says_so(report: Report, what: str, answer: Answer) -> None:
    """The words a person needs to see before the act."""
    text = answer.text.lower()
    report.claim(f"{what} says that the outcome is unknown", "unknown" in text, answer.text[-200:])


def refused(report: Report, what: str, answer: Answer) -> None:
    """Refused, with the name of the option that would do it."""
    report.claim(f"{what} is refused without --despite-unknown", answer.code != 0, answer.text[-200:])
    report.quote(what, answer.text)

