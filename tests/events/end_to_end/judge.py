# What an independent client finds out by itself: everything is there, in order within its key, to the last digit.
import json
from decimal import Decimal


def read(text):
    """JSON whose numbers keep their text."""
    number = lambda text: ("number", text)
    return json.loads(text, parse_float=number, parse_int=number, parse_constant=None)


def same(told, got):
    if type(told) is not type(got):
        return False
    if isinstance(told, tuple):
        a, b = told[1], got[1]
        # Equal to the last digit, those after the point included; a database writes exponents out.
        return Decimal(a) == Decimal(b) and (a == b or "e" in a.lower() or Decimal(a) == 0)
    if isinstance(told, dict):
        return told.keys() == got.keys() and all(same(told[name], got[name]) for name in told)
    if isinstance(told, list):
        return len(told) == len(got) and all(map(same, told, got))
    return told == got


class Judge:
    def __init__(self, path):
        self.told, self.place, keys = {}, {}, {}
        for text in json.load(open(path)):
            event = read(text)
            number = int(event["payload"]["number"][1])
            self.told[event["envelope"]["eventId"]] = event
            keys.setdefault(event["key"]["transferId"], set()).add(number)
        assert all(numbers == set(range(1, len(numbers) + 1)) for numbers in keys.values())
        self.seen, self.last = {}, {}
        self.repeated = 0
        self.charges = {}

    def charge(self, what, event_id):
        self.charges.setdefault(what, []).append(event_id)

    def arrived(self, event_id, position, body):
        """One message: the id and the position beside it, and its body."""
        told = self.told.get(event_id)
        if told is None:
            return self.charge("invented", event_id)
        got = read(body)
        if not same(told, got):
            self.charge("altered", event_id)
        if event_id in self.seen:
            self.repeated += 1
            if self.seen[event_id] != position:
                self.charge("repeated with another position", event_id)
            return
        self.seen[event_id] = position
        key, number = got["key"]["transferId"], int(got["payload"]["number"][1])
        before = self.last.get(key, (0, 0))
        if number != before[0] + 1 or position <= before[1]:
            self.charge(f"out of order ({number} after {before[0]})", event_id)
        self.last[key] = (number, position)

    def verdict(self):
        for event_id in self.told.keys() - self.seen.keys():
            self.charge("missing", event_id)
        return {
            "events": len(self.seen),
            "repeated": self.repeated,
            "charges": {what: [len(ids), ids[:5]] for what, ids in self.charges.items()},
        }
