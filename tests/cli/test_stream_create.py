"""`headrace stream create`: types, order, ids and policies from the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.streaming import Streams, lines_of

from headrace.cli.stream_create import parse_stream_field


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("n:int", pa.field("n", pa.int64(), nullable=False)),
        ("n:int?", pa.field("n", pa.int64())),
        ("x: float ?", pa.field("x", pa.float64())),
        ("at:datetime", pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False)),
        ("at:timestamp[ms, tz=Europe/Paris]?", pa.field("at", pa.timestamp("ms", tz="Europe/Paris"))),
        ("id:UUID", pa.field("id", pa.binary(16), nullable=False)),
        ("tags:list[str]", pa.field("tags", pa.list_(pa.string()), nullable=False)),
        ("tags:list<int32>?", pa.field("tags", pa.list_(pa.int32()))),
        ("price:decimal128(10, 2)", pa.field("price", pa.decimal128(10, 2), nullable=False)),
    ],
)
def test_types_have_python_or_arrow_names_and_a_question_mark_makes_them_optional(
    text: str, wanted: pa.Field
) -> None:
    assert parse_stream_field(text) == wanted


@pytest.mark.parametrize("text", ["n", ":int", "n:", "n:?", "n:nonsense"])
def test_what_is_no_field_is_wrong_usage(streams: Streams, text: str) -> None:
    assert "error (usage): " in streams.refused("create", "a", "--field", text, code=2)
    assert not streams.path.exists()


def test_without_fields_entries_are_plain_bytes(streams: Streams) -> None:
    assert streams("create", "a").text == "created stream a: plain bytes, ordered by index\n"
    assert streams("info", "a", "--json").json["raw"] is True


def test_everything_that_was_asked_for_is_stored(streams: Streams) -> None:
    streams(
        "create", "a", "--field", "id:str", "--field", "t:int", "--order-by", "t", "--strict",
        "--unique-by", "id", "--unique-window", "100", "--profile", "sherlock", "--durability", "os",
        "--compression", "zstd", "--retain-age", "7d", "--retain-bytes", "1GiB",
    )  # fmt: skip
    found = streams("info", "a", "--json").json
    assert (found["order_by"], found["strict"]) == ("t", True)
    assert (found["unique_by"], found["unique_window"]) == ("id", 100)
    settings = found["settings"]
    assert settings["finalize"] == {"bytes": 10_000_000, "entries": 100_000_000, "age_s": 86400.0}
    assert (settings["durability"], settings["compression"]) == ("os", "zstd")
    assert (settings["retention"]["age_s"], settings["retention"]["bytes"]) == (7 * 86400.0, 1 << 30)


def test_options_that_exclude_or_need_each_other_are_wrong_usage(streams: Streams, tmp_path: Path) -> None:
    for words in (
        ("--field", "a:int", "--like", str(tmp_path / "x.csv")),
        ("--profile", "scan", "--segment-bytes", "1MiB"),
        ("--field", "a:int", "--unique-window", "5"),
        ("--field", "a:int", "--strict"),
    ):
        streams.refused("create", "a", *words, code=2)


def test_what_a_stream_refuses_is_one_line_and_leaves_no_stream(streams: Streams) -> None:
    for words in (
        ("--order-by", "b"),
        ("--field", "a:str", "--order-by", "a"),
        ("--field", "a:int", "--unique-by", "b"),
        ("--field", "a:int", "--field", "a:int"),
        ("--field", "_a:int"),
    ):
        assert streams.refused("create", "a", *words).startswith("error (")
    streams("create", "other")
    assert [row["name"] for row in streams("ls", "--json").json["streams"]] == ["other"]


def test_a_name_is_taken_only_once(streams: Streams) -> None:
    streams("create", "a")
    assert streams.refused("create", "a").startswith("error (stream_exists): ")


def test_like_takes_the_schema_of_a_parquet_file_as_it_is(streams: Streams, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False), pa.field("s", pa.large_string())])
    pq.write_table(pa.table({"n": [1], "s": ["x"]}, schema=schema), tmp_path / "a.parquet")
    streams("create", "a", "--like", tmp_path / "a.parquet")
    assert streams("info", "a", "--json").json["schema"] == [
        {"name": "n", "type": "int32", "nullable": False},
        {"name": "s", "type": "large_string", "nullable": True},
    ]


def test_like_infers_json_lines(streams: Streams, tmp_path: Path) -> None:
    rows = [
        {"i": 1, "f": 1, "b": True, "t": "2024-01-01T00:00:00Z", "d": "2024-01-01", "s": "x", "n": None},
        {"i": 2, "f": 0.5, "b": False, "t": "2024-01-01T00:00:00+02:00", "d": "2024-01-02", "s": "2024"},
        {"i": 3, "raw": {"base64": "AA=="}, "l": ["a"], "o": {"x": 1}},
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_bytes(lines_of(rows))
    streams("create", "a", "--like", tmp_path / "a.jsonl", "--unique-by", "i")
    found = {one["name"]: one for one in streams("info", "a", "--json").json["schema"]}
    assert {name: one["type"] for name, one in found.items()} == {
        "i": "int64",
        "f": "double",
        "b": "bool",
        "t": "timestamp[us, tz=UTC]",
        "d": "date32[day]",
        "s": "string",
        "n": "string",
        "raw": "binary",
        "l": "list<item: string>",
        "o": "struct<x: int64>",
    }
    assert [name for name, one in found.items() if not one["nullable"]] == ["i"]


def test_like_infers_csv(streams: Streams, tmp_path: Path) -> None:
    text = (
        'i,x,t,d,s,e\n1,0.5,2024-01-01T00:00:00Z,2024-01-01,"a\nb",\n2,1,2024-01-01T00:00:01Z,2024-01-02,c,\n'
    )
    (tmp_path / "a.csv").write_text(text)
    streams("create", "a", "--like", tmp_path / "a.csv")
    kinds = [one["type"] for one in streams("info", "a", "--json").json["schema"]]
    assert kinds == ["int64", "double", "timestamp[us, tz=UTC]", "date32[day]", "string", "string"]


def test_a_file_that_tells_no_fields_is_one_line(streams: Streams, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"a": 1}\n{"a": "x"}\n')
    (tmp_path / "c.jsonl").write_bytes(b"[1]\n")
    (tmp_path / "d.csv").write_bytes(b"")
    (tmp_path / "e.parquet").write_bytes(b"not parquet at all")
    (tmp_path / "f.arrow").write_bytes(b"not arrow at all")
    for name in ("a.jsonl", "b.jsonl", "c.jsonl", "d.csv", "e.parquet", "f.arrow"):
        assert streams.refused("create", "a", "--like", tmp_path / name).startswith("error (bad_input): ")
    (tmp_path / "g.dat").write_bytes(b"?")
    streams.refused("create", "a", "--like", tmp_path / "g.dat", code=2)
    assert streams.refused("create", "a", "--like", tmp_path / "none.csv").startswith("error (not_found): ")
    assert not streams.path.exists()
