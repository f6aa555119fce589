"""Columns made of buffers are what pa.array would make, and nothing loads pandas on the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.journal.columns import column_of, column_of_one

_KINDS = {
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(1 << 15), (1 << 15) - 1),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.timestamp("us", "UTC"): st.integers(0, 1 << 57),
    pa.binary(): st.binary(max_size=20),
    pa.string(): st.text(max_size=10),
}


@pytest.mark.parametrize("kind", _KINDS, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_a_column_is_what_arrow_makes_of_the_values(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | _KINDS[kind], max_size=40))
    column = column_of(values, kind)
    column.validate(full=True)
    assert column.equals(pa.array(values, kind))


@pytest.mark.parametrize("kind", _KINDS, ids=str)
@settings(deadline=None)
@given(data=st.data())
def test_a_column_of_one_value_is_what_arrow_makes_of_it(kind: pa.DataType, data: st.DataObject) -> None:
    value, count = data.draw(st.none() | _KINDS[kind]), data.draw(st.sampled_from([0, 1, 7, 1025]))
    column = column_of_one(value, count, kind)
    column.validate(full=True)
    assert column.equals(pa.array([value] * count, kind))


def test_a_journal_is_made_worked_with_and_opened_again_without_pandas(place: Path) -> None:
    steps = """
import sys
from headrace.journal import open_journal
for _ in range(2):
    with open_journal(sys.argv[1]) as journal:
        journal.put("https://example.com/a", value=b"v")
        journal.set("k", 1)
        assert list(journal.match("k"))
        assert journal.done_batch(journal.next_batch(1).column("id")) == []
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", steps, str(place / "journal")], check=True)
