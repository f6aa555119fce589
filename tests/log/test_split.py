"""Splitting: what is too large for one frame becomes several, by rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.kernel.errors import TooLarge
from headrace.log import split

from .samples import ORDERS, orders, raw


def test_batches_that_are_too_large_are_halved_until_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "_MOST_BYTES", 1000)
    records = orders(0, 500)
    parts = split.split(records)
    assert len(parts) > 5
    assert all(part.nbytes <= 1000 and part.num_rows for part in parts)
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([records]))


def test_one_entry_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "_MOST_BYTES", 1000)
    with pytest.raises(TooLarge, match="one entry"):
        split.split(raw(b"small", b"x" * 2000))


def test_portions_are_as_large_as_they_may_be() -> None:
    records = orders(0, 500)
    parts = list(split.portions(records, 1000))
    assert all(part.nbytes <= 1000 for part in parts)
    one_more = [a.num_rows + 1 for a in parts[:-1]]
    begins = [sum(part.num_rows for part in parts[:at]) for at in range(len(parts))]
    assert all(records.slice(*each).nbytes > 1000 for each in zip(begins, one_more, strict=False))
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([records]))
    assert list(split.portions(orders(0, 400), 1000))[:5] == parts[:5]  # rows behind do not move them


def test_a_row_that_is_larger_than_a_portion_is_one_by_itself() -> None:
    parts = split.portions(raw(b"a", b"x" * 2000, b"b", b"c"), 1000)
    assert [part.num_rows for part in parts] == [1, 1, 2]
    assert [part.num_rows for part in split.portions(raw(b"a", b"x" * 2000), 1000)] == [1, 1]
    assert [part.num_rows for part in split.portions(raw(b"a", b"x" * 2000), None)] == [2]


def test_empty_batches_are_left_out() -> None:
    table = pa.Table.from_batches([orders(0, 0), orders(0, 2), orders(2, 2)])
    assert [part.num_rows for part in split.split(table)] == [2]
    assert split.split(orders(0, 0)) == []
    assert split.split(ORDERS.empty_table()) == []
