"""How sizes, durations, fields and groups of options are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.options import with_options
from headrace.cli.quantities import format_duration, format_size, parse_duration, parse_size
from headrace.wire.fields import describe_field, parse_field


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("20", 20),
        ("20B", 20),
        ("512K", 512 << 10),
        ("10MB", 10_000_000),
        ("128MiB", 128 << 20),
        ("1.5g", 3 << 29),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("2h", 7200), ("7d", 604_800), ("1.5m", 90), ("250ms", 0.25)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "K", "-1", "1Q", "1KiX", "1 2", "0.3", "1e3"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "5y"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_quantities_are_shown_for_people() -> None:
    assert format_size(1_572_864) == "1.5 MiB (1,572,864 bytes)"
    assert format_size(999) == "999 bytes"
    assert [format_duration(seconds) for seconds in (604_800, 7200, 90, 0.5)] == ["1w", "2h", "90s", "0.5s"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("n:int64", pa.field("n", pa.int64())),
        ("n: int64 not null", pa.field("n", pa.int64(), nullable=False)),
        ("at:timestamp[us, tz=+01:00]", pa.field("at", pa.timestamp("us", tz="+01:00"))),
        ("at:timestamp[ns]", pa.field("at", pa.timestamp("ns"))),
        ("p:decimal128(10, 2)", pa.field("p", pa.decimal128(10, 2))),
        ("l:list<list<date32>>", pa.field("l", pa.list_(pa.list_(pa.date32())))),
        ("f:float64", pa.field("f", pa.float64())),
    ],
)
def test_a_field_is_read_as_arrow_writes_it(text: str, field: pa.Field) -> None:
    assert parse_field(text).equals(field)
    assert parse_field(describe_field(field)).equals(field)


@pytest.mark.parametrize(
    "text", ["n", ":int64", "n:", "n:int", "n:decimal128(99, 2)", "at:timestamp[us, tz=Mars]"]
)
def test_what_is_no_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_field(text)


@dataclass(frozen=True, slots=True)
class _Colours:
    front: Annotated[str, typer.Option(help="Before.")] = "black"
    back: Annotated[str, typer.Option(help="Behind.")] = "white"


def test_options_that_belong_together_arrive_together() -> None:
    app = typer.Typer()

    @app.command()
    @with_options
    def paint(thing: Annotated[str, typer.Argument()], *, colours: _Colours) -> None:
        """Paint a thing."""
        typer.echo(f"{thing}: {colours.front} on {colours.back}")

    assert CliRunner().invoke(app, ["door", "--front", "red"]).stdout == "door: red on white\n"
