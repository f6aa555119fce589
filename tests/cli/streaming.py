"""What the tests of `headrace stream` share: running it on a store, and streams to run it on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.running import Outcome, headrace

import headrace as hr

ORDERS = [
    {"at": "2024-07-01T12:00:00.000000Z", "user": "ann", "amount": 1.5},
    {"at": "2024-07-01T12:00:01.000000Z", "user": "bob", "amount": 2.0},
    {"at": "2024-07-01T12:00:02.000000Z", "user": "ann", "amount": None},
]
FIELDS = ("--field", "at:datetime", "--field", "user:str", "--field", "amount:float?")


@dataclass(frozen=True, slots=True)
class Circle:
    radius: float
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Square:
    side: float


@dataclass(frozen=True, slots=True)
class Streams:
    """`headrace stream` on one store."""

    path: Path

    def run(self, verb: str, *words: str | Path, given: bytes = b"") -> Outcome:
        return headrace("stream", verb, *words, "--store", self.path, given=given)

    def __call__(self, verb: str, *words: str | Path, given: bytes = b"") -> Outcome:
        """The same, which must succeed."""
        outcome = self.run(verb, *words, given=given)
        assert outcome.code == 0, outcome
        return outcome

    def refused(self, verb: str, *words: str | Path, given: bytes = b"", code: int = 1) -> str:
        """What is said of a command that fails: one line."""
        outcome = self.run(verb, *words, given=given)
        assert (outcome.code, outcome.out) == (code, b""), outcome
        assert outcome.err.count("\n") == 1, outcome.err
        return outcome.err

    def rows(self, name: str, *words: str | Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("cat", name, *words, "--json").lines]

    def orders(self) -> None:
        """A stream `orders` with three entries."""
        self("create", "orders", *FIELDS, "--order-by", "at")
        self("publish", "orders", given=lines_of(ORDERS))

    def shapes(self) -> None:
        """A stream `shapes` of a union."""
        with hr.open(self.path) as store, store.stream("shapes", Circle | Square).publisher() as publisher:
            publisher.publish(Circle(1.0, "one"))
            publisher.publish(Square(2.0))
            publisher.publish(Circle(3.0))

    def damaged(self) -> None:
        """A stream `torn` of eight plain entries, two a segment, of which 2 and 3 cannot be read."""
        self("create", "torn", "--segment-bytes", "1K")
        for number in range(4):
            self("publish", "torn", given=b"record %da\nrecord %db\n" % (number, number))
        segment = sorted((self.path / "streams" / "torn").glob("*.seg"))[1]
        content = bytearray(segment.read_bytes())
        content[content.index(b"record 1a")] ^= 0xFF
        segment.write_bytes(content)


def lines_of(rows: Iterable[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
