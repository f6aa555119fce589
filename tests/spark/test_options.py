"""Options: every wrong one is told by one sentence that says what to do."""

from __future__ import annotations

import re

import pytest

from headrace.kernel.errors import BadSettings
from headrace.spark import options as module
from headrace.spark.options import KNOWN, Options, parse_options
from headrace.spark.place import Place


def test_what_is_not_said_has_its_default() -> None:
    assert parse_options({"path": "data"}) == Options(Place("data"))
    assert Options(Place("data")).fail_on_data_loss
    assert not Options(Place("data")).take_over


def test_everything_that_can_be_said() -> None:
    given = {
        "path": "data",
        "stream": "orders",
        "view": "segments",
        "columns": "a, b,_index",
        "withIndex": "true",
        "withKey": "TRUE",
        "startIndex": "5",
        "endKey": "2024-01-01",
        "maxRowsPerTrigger": "10",
        "partitionRows": "20",
        "failOnDataLoss": "false",
        "position": "p",
        "orderBy": "at",
        "takeOver": "true",
        "writer": "w",
        "writeId": "monday",
    }
    wanted = Options(
        Place("data"),
        stream="orders",
        view="segments",
        columns=("a", "b", "_index"),
        with_index=True,
        with_key=True,
        start_index=5,
        end_key="2024-01-01",
        max_rows=10,
        partition_rows=20,
        fail_on_data_loss=False,
        position="p",
        order_by="at",
        take_over=True,
        writer="w",
        write_id="monday",
    )
    assert parse_options(given) == wanted
    lower = {name.lower(): value for name, value in given.items()}
    assert parse_options(lower) == wanted, "Spark gives names in lower case"


@pytest.mark.parametrize("place", ["earliest", "latest"])
def test_a_start_may_be_a_word(place: str) -> None:
    assert parse_options({"path": "data", "startIndex": place}).start_index == place


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, r"say where the store is: .option\('path', 'data'\)"),
        ({"path": "d", "url": "https://x"}, "give path or url, not both"),
        ({"path": "d", "startIndex": "1", "startKey": "2"}, "startIndex or startKey, not both"),
        ({"path": "d", "endIndex": "1", "endKey": "2"}, "endIndex or endKey, not both"),
        ({"path": "d", "startIndex": "soon"}, "startIndex.* not 'soon'"),
        ({"path": "d", "startIndex": "-1"}, "startIndex.* not '-1'"),
        ({"path": "d", "endIndex": "latest"}, "endIndex is a whole number from 0 on, not 'latest'"),
        ({"path": "d", "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger is a whole number from 1 on, not '0'"),
        ({"path": "d", "partitionRows": "1.5"}, "partitionRows is a whole number from 1 on, not '1.5'"),
        ({"path": "d", "failOnDataLoss": "maybe"}, "failOnDataLoss is true or false, not 'maybe'"),
        ({"path": "d", "withIndex": "1"}, "withIndex is true or false, not '1'"),
    ],
)
def test_a_wrong_one_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        parse_options(given)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("streams", "stream"),
        ("startindx", "startIndex"),
        ("maxRowPerTrigger", "maxRowsPerTrigger"),
        ("failOnDataloss_", "failOnDataLoss"),
        ("takeover_", "takeOver"),
        ("orderby_", "orderBy"),
        ("colums", "columns"),
        ("writeIds", "writeId"),
    ],
)
def test_a_slip_is_told(slip: str, meant: str) -> None:
    with pytest.raises(BadSettings, match=f"did you mean '{meant}'"):
        parse_options({"path": "d", slip: "1"})


def test_options_of_spark_itself_are_let_through() -> None:
    assert parse_options({"path": "d", "checkpointLocation": "c", "queryName": "q"}) == Options(Place("d"))


def test_a_stream_must_be_named_where_one_is_needed() -> None:
    with pytest.raises(BadSettings, match=r"say which stream: .option\('stream', 'orders'\)"):
        _ = parse_options({"path": "d"}).stream_name


def test_every_option_is_told_of_where_they_are_listed() -> None:
    """The module's own list is what people read; `url` comes with the node."""
    told = set(re.findall(r"\w+", module.__doc__ or ""))
    assert set(KNOWN) - {"url"} <= told
