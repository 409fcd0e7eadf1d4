"""What a scenario found: figures, claims that held or did not, and what was asked compared with what was paid."""

from dataclasses import dataclass, field

from cluster import Cluster
from product import Payment
from provider import Bank


@dataclass
class Report:
    """One scenario's figures and claims."""

    name: str
    figures: dict[str, object] = field(default_factory=dict)
    claims: list[tuple[str, bool, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def figure(self, name: str, value: object) -> None:
        """A number for the table."""
        self.figures[name] = value

    def claim(self, text: str, holds: bool, otherwise: object = "") -> bool:
        """What must be so; `otherwise` says what was found instead."""
        found = "" if holds else " ".join(str(otherwise).split())[-300:]
        self.claims.append((text, bool(holds), found))
        return bool(holds)

    def quote(self, who: str, text: str, lines: int = 12) -> None:
        """What the product said, for the reader."""
        kept = [line for line in text.splitlines() if line.strip()][:lines]
        self.words.append(f"{who}:\n" + "\n".join(f"    | {line[:220]}" for line in kept))

    @property
    def holds(self) -> bool:
        """Whether every claim held."""
        return all(holds for _, holds, _ in self.claims)

    def text(self, verbose: bool) -> str:
        """For people."""
        lines = [f"== {self.name}: {'holds' if self.holds else 'DOES NOT HOLD'} ({self.seconds:.1f} s)"]
        lines.append("   " + ", ".join(f"{name} {value}" for name, value in self.figures.items()))
        for text, holds, otherwise in self.claims:
            lines.append(f"   {'held  ' if holds else 'FAILED'} {text}" + (f": {otherwise}" if otherwise else ""))
        if verbose or not self.holds:
            lines += ["   " + word.replace("\n", "\n   ") for word in self.words]
        return "\n".join(lines)

    def document(self) -> dict:
        """For scripts."""
        claims = [{"claim": text, "holds": holds, "otherwise": otherwise} for text, holds, otherwise in self.claims]
        return {
            "scenario": self.name, "holds": self.holds, "seconds": round(self.seconds, 1), "figures": self.figures,
            "claims": claims,
        }


def judge(
    report: Report, asked: list[Payment], banks: list[Bank], cluster: Cluster, said_failed: set[str] = frozenset()
) -> None:
    """Every payment asked for was executed once, with its amount, and the ledger says so with the bank's reference.

    `said_failed` are those that a person has ended as FAILED against all advice: the ledger repeats what it was told.
    """
    executed: dict[str, list[dict]] = {}
    for bank in banks:
        for instruction, done in bank.executed().items():
            executed.setdefault(instruction, []).extend(done)
    twice = {name: done for name, done in executed.items() if len(done) > 1}
    lost = [payment.instruction for payment in asked if payment.instruction not in executed]
    names = {payment.instruction for payment in asked}
    strangers = [name for name in executed if name not in names]
    asked_cents = sum(payment.cents for payment in asked)
    paid_cents = sum(int(done["amount"].replace(".", "")) for many in executed.values() for done in many)
    ledger = dict(
        cluster.rows(
            "SELECT instruction_id, rail_reference FROM symphony.payment_outbox_attempts WHERE state = 'DISPATCHED'", "operator"
        )
    )
    references = {name: {done["reference"] for done in many} for name, many in executed.items()}
    untrue = [name for name, reference in ledger.items() if reference not in references.get(name, ())]
    unsaid = [name for name in executed if name not in ledger and name not in said_failed]
    report.figure("asked", len(asked))
    report.figure("executed", sum(map(len, executed.values())))
    report.figure("paid twice", len(twice))
    report.figure("lost", len(lost))
    report.figure("sum asked", f"{asked_cents / 100:.2f}")
    report.figure("sum paid", f"{paid_cents / 100:.2f}")
    report.claim("0 paid twice", not twice, f"{len(twice)} were: {few(twice)}")
    report.claim("0 lost", not lost, f"{len(lost)} were: {few(lost)}")
    report.claim("nothing was paid that nobody asked for", not strangers, few(strangers))
    report.claim("the sums are equal", asked_cents == paid_cents)
    report.claim("the ledger names a reference of the bank for each", not untrue and not unsaid, few(untrue + unsaid))


def few(names) -> str:
    """The first of many."""
    listed = list(names)
    return ", ".join(listed[:3]) + (" …" if len(listed) > 3 else "")
