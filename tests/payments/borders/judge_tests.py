"""The judge judged: a bank that pays twice is found, and so is a payment that nobody made."""

import http.client
import json
import tempfile
import time
import unittest
from pathlib import Path

from product import Payment
from provider import Bank
from verdict import Report, judge


class Ledger:
    """Stands in for a cluster: says what the ledger would."""

    def __init__(self, rows: list[list[str]]):
        self.answer = rows

    def rows(self, *_: str) -> list[list[str]]:
        """The DISPATCHED rows."""
        return self.answer


def send(bank: Bank, entry: str, key: str, instruction: str, amount: str = "10.00") -> tuple[int, dict]:
    """One transfer over HTTP."""
    body = json.dumps({"instruction": instruction, "amount": {"value": amount, "currency": "EUR"}})
    return request(bank, "POST", f"/{entry}/transfers", body, {"Idempotency-Key": key})


def ask(bank: Bank, entry: str, key: str) -> tuple[int, dict]:
    """One inquiry over HTTP."""
    return request(bank, "GET", f"/{entry}/transfers/{key}", None, {})


def request(bank: Bank, method: str, path: str, body: str | None, headers: dict) -> tuple[int, dict]:
    """Status and document."""
    connection = http.client.HTTPConnection(bank.address, timeout=5)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


class JudgeTests(unittest.TestCase):
    """Each name is a claim."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bank = Bank(Path(folder.name), "bank", key_lifetime_seconds=60)
        self.addCleanup(self.bank.close)

    def found(self, asked: list[Payment], ledger: list[list[str]]) -> dict[str, bool]:
        """The judge's claims."""
        report = Report("test")
        judge(report, asked, [self.bank], Ledger(ledger))
        return {text: holds for text, holds, _ in report.claims}

    def test_a_remembered_key_pays_once(self) -> None:
        first = send(self.bank, "keyed", "k", "a")
        self.assertEqual(first, send(self.bank, "keyed", "k", "a"))
        self.assertEqual(len(self.bank.executed()["a"]), 1)

    def test_an_expired_key_pays_again(self) -> None:
        send(self.bank, "keyed", "k", "a")
        self.bank.key_lifetime_seconds = 0
        time.sleep(0.01)
        send(self.bank, "keyed", "k", "a")
        self.assertEqual(len(self.bank.executed()["a"]), 2)

    def test_another_key_for_the_same_instruction_is_paid_twice(self) -> None:
        for key in ("k", "l"):
            send(self.bank, "keyed", key, "a")
        claims = self.found([Payment("a", "keyed", 1_000)], [["a", "bank-1"]])
        self.assertFalse(claims["0 paid twice"])
        self.assertFalse(claims["the sums are equal"])

    def test_what_was_never_executed_is_lost(self) -> None:
        self.assertFalse(self.found([Payment("a", "keyed", 1_000)], [])["0 lost"])

    def test_a_reference_the_bank_does_not_know_is_found(self) -> None:
        send(self.bank, "keyed", "k", "a")
        claims = self.found([Payment("a", "keyed", 1_000)], [["a", "bank-7"]])
        self.assertFalse(claims["the ledger names a reference of the bank for each"])

    def test_one_execution_with_its_reference_holds(self) -> None:
        send(self.bank, "keyed", "k", "a")
        self.assertTrue(all(self.found([Payment("a", "keyed", 1_000)], [["a", "bank-1"]]).values()))

    def test_a_lost_answer_is_executed_and_can_be_asked_for(self) -> None:
        self.bank.lose_answers = True
        with self.assertRaises(http.client.HTTPException):
            send(self.bank, "asked", "k", "a")
        self.assertEqual(ask(self.bank, "asked", "k"), (200, {"code": "ACSC", "reference": "bank-1"}))
        self.assertEqual(ask(self.bank, "asked", "l"), (404, {"code": "NO_SUCH_KEY"}))


if __name__ == "__main__":
    unittest.main()
