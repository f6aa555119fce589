"""`headrace stream publish`: files of every format in, and what happens to rows that do not fit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.streaming import FIELDS, ORDERS, Streams, lines_of

import headrace as hr
from headrace.cli import line_files

NUMBERS = pa.table({"n": pa.array(range(1000)), "name": [f"name {n}" for n in range(1000)]})


def write(path: Path, form: str, table: pa.Table) -> Path:
    file = path / f"numbers.{form}"
    match form:
        case "parquet":
            pq.write_table(table, file)
        case "arrow":
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=10)
        case "arrows":
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
        case "csv":
            rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
            file.write_text("n,name\n" + "".join(f"{n},{name}\n" for n, name in rows))
        case _:
            file.write_bytes(lines_of(table.to_pylist()))
    return file


FORMATS = ["jsonl", "csv", "parquet", "arrow", "arrows"]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_known_by_its_suffix(streams: Streams, tmp_path: Path, form: str) -> None:
    streams("create", "a", "--field", "n:int", "--field", "name:str")
    done = streams("publish", "a", write(tmp_path, form, NUMBERS), "--json").json
    assert (done["first_index"], done["count"], done["duplicates"]) == (0, 1000, 0)
    assert done["entries_per_second"] > 0
    assert streams.rows("a") == NUMBERS.to_pylist()
    again = streams("publish", "a", write(tmp_path, form, NUMBERS), "--json").json
    assert (again["first_index"], again["count"]) == (1000, 1000)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_can_come_from_stdin_and_create_the_stream(
    streams: Streams, tmp_path: Path, form: str
) -> None:
    given = write(tmp_path, form, NUMBERS).read_bytes()
    name = "arrow" if form == "arrows" else form
    assert streams("publish", "a", "--create", "--format", name, "--json", given=given).json["count"] == 1000
    assert streams.rows("a") == NUMBERS.to_pylist()


def test_json_lines_are_what_stdin_is_taken_for(streams: Streams) -> None:
    streams("publish", "a", "-", "--create", given=b'{"x": 1}\n\n{"x": 2}')
    assert streams.rows("a") == [{"x": 1}, {"x": 2}]


def test_a_file_that_is_larger_than_a_container_is_published_in_parts(
    streams: Streams, tmp_path: Path
) -> None:
    streams("create", "a", "--field", "n:int", "--field", "name:str", "--container-bytes", "512KiB")
    rows = [{"n": n, "name": "x" * 1000} for n in range(2000)] + [{"n": "no number", "name": "x"}]
    file = tmp_path / "rows.jsonl"
    file.write_bytes(lines_of(rows[:-1]))
    assert streams("publish", "a", file, "--json").json["count"] == 2000
    assert streams.rows("a") == rows[:-1]
    assert "line 2001" in streams.refused("publish", "a", given=lines_of(rows))


def test_plain_bytes_are_published_line_by_line(streams: Streams) -> None:
    streams("create", "a")
    data = bytes(set(range(256)) - {10})
    streams("publish", "a", given=data + b"\n\nlast")
    assert streams("cat", "a").out == data + b"\n\nlast\n"
    streams("publish", "b", "--create", "--format", "lines", given=b"x\n")
    assert streams("info", "b", "--json").json["raw"] is True


def test_plain_lines_are_not_for_typed_streams(streams: Streams) -> None:
    streams.orders()
    assert "typed" in streams.refused("publish", "orders", "--format", "lines", given=b"x\n")


def test_a_file_whose_format_cannot_be_guessed_needs_to_be_told(streams: Streams, tmp_path: Path) -> None:
    streams.orders()
    (tmp_path / "orders.dat").write_bytes(b"")
    assert "--format" in streams.refused("publish", "orders", tmp_path / "orders.dat", code=2)


def test_an_empty_input_publishes_nothing(streams: Streams) -> None:
    streams.orders()
    assert streams("publish", "orders").text == "published 0 entries\n"


def test_fields_that_may_be_null_can_be_left_out(streams: Streams, tmp_path: Path) -> None:
    streams("create", "orders", *FIELDS)
    (tmp_path / "a.csv").write_text("user,at\nann,2024-07-01T12:00:00Z\n")
    streams("publish", "orders", tmp_path / "a.csv")
    assert streams.rows("orders") == [ORDERS[0] | {"amount": None}]


# --- rows that do not fit


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"at": "2024-07-01T13:00:00Z", "user": 5}', "line 2, field 'user': it must be a string"),
        ('{"at": "yesterday", "user": "x"}', "line 2, field 'at': 'yesterday' is not a time"),
        ('{"user": "x"}', "line 2, field 'at': it is missing or null"),
        ('{"at": "2024-07-01T13:00:00Z", "user": "x", "who": 1}', "line 2: the stream has no field 'who'"),
        ("{", "line 2 is not JSON"),
        ("[]", "line 2 is an array"),
    ],
)
def test_a_line_that_does_not_fit_is_named_and_nothing_is_published(
    streams: Streams, line: str, told: str
) -> None:
    streams.orders()
    good = '{"at": "2024-07-01T12:30:00Z", "user": "x"}'
    said = streams.refused("publish", "orders", given=f"{good}\n{line}\n{good}\n".encode())
    assert said.startswith("error (schema_mismatch): ")
    assert told in said
    assert said.endswith("nothing was published\n")
    assert len(streams.rows("orders")) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n,name\n1,a\nx,b\n", "row 2, field 'n': 'x' is not int64"),
        ("n,name\n1,a\n,b\n", "row 2, field 'n': it may not be null"),
        ("n,name\n1,a\n2\n", "row 2 of the CSV has 1 cells instead of 2"),
        ("n,name,more\n1,a,b\n", "has no field 'more'"),
        ("name\na\n", "no column 'n'"),
        ("n,n\n1,1\n", "two columns 'n'"),
    ],
)
def test_a_row_of_csv_that_does_not_fit_is_named(streams: Streams, text: str, told: str) -> None:
    streams("create", "a", "--field", "n:int", "--field", "name:str")
    assert told in streams.refused("publish", "a", "--format", "csv", given=text.encode())
    assert streams.rows("a") == []


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_row_of_a_table_that_does_not_fit_is_named(streams: Streams, tmp_path: Path, form: str) -> None:
    streams("create", "a", "--field", "n:int8", "--field", "name:str")
    told = streams.refused("publish", "a", write(tmp_path, form, NUMBERS))
    assert "row 129, field 'n': 128 does not fit int8; nothing was published" in told
    nulls = pa.table({"n": pa.array([1, 2, None], pa.int8()), "name": ["a", "b", "c"]})
    assert "row 3, field 'n': it may not be null" in streams.refused(
        "publish", "a", write(tmp_path, form, nulls)
    )
    other = pa.table({"n": ["x"], "name": ["a"]})
    assert "'n'" in streams.refused("publish", "a", write(tmp_path, form, other))


def test_an_order_key_that_goes_back_is_named(streams: Streams) -> None:
    streams("create", "a", "--field", "t:int", "--order-by", "t")
    told = streams.refused("publish", "a", given=lines_of({"t": t} for t in (1, 2, 1)))
    assert "line 3, field 't': the order key goes from 2 to 1: it must not go back" in told
    streams("publish", "a", given=lines_of([{"t": 5}]))
    told = streams.refused("publish", "a", given=lines_of([{"t": 4}, {"t": 6}]))
    assert told.startswith("error (key_order): line 1: ")


def test_blocks_before_a_wrong_one_are_published_and_counted(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_files, "BLOCK_BYTES", 100)
    streams("create", "a", "--field", "n:int")
    given = lines_of([*({"n": n} for n in range(100)), {"n": "x"}])
    told = streams.refused("publish", "a", given=given)
    assert "line 101, field 'n'" in told
    count = len(streams.rows("a"))
    assert 0 < count <= 100
    assert told.endswith(f"; {count} entries were published before, from index 0 on\n")
    assert streams.rows("a") == [{"n": n} for n in range(count)]


def test_lines_longer_than_a_block_are_whole(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_files, "BLOCK_BYTES", 7)
    rows = [{"s": "x" * size} for size in (0, 1, 50, 3, 1000, 0)]
    streams("publish", "a", "--create", given=lines_of(rows))
    assert streams.rows("a") == rows


def test_damaged_files_are_one_line(streams: Streams, tmp_path: Path) -> None:
    streams("create", "a", "--field", "n:int", "--field", "name:str")
    for form in ("parquet", "arrow"):
        file = write(tmp_path, form, NUMBERS)
        file.write_bytes(file.read_bytes()[:-200])
        if form == "arrow":
            file.write_bytes(file.read_bytes()[:5000])
        assert streams.refused("publish", "a", file).startswith("error (bad_input): ")


def test_small_batches_of_a_file_are_put_together(streams: Streams, tmp_path: Path) -> None:
    streams("publish", "a", write(tmp_path, "arrow", NUMBERS), "--create")  # in batches of ten rows
    with hr.open(streams.path) as store:
        assert len(list(store.stream("a").listen_batches())) == 1


# --- ids and publishers


def test_duplicates_are_left_out_and_counted(streams: Streams) -> None:
    streams("create", "a", "--field", "id:str", "--unique-by", "id")
    first = streams("publish", "a", "--json", given=lines_of({"id": i} for i in "abca")).json
    assert (first["count"], first["duplicates"], first["first_duplicate"]) == (3, 1, "line 4")
    again = streams("publish", "a", given=lines_of({"id": i} for i in "xbcy"))
    assert "published 2 entries from index 3 on" in again.text
    assert "2 duplicates left out, the first at line 2" in again.text
    assert [row["id"] for row in streams.rows("a")] == list("abcxy")
    assert "unique ids" in streams("info", "a").text


def test_a_publisher_elsewhere_is_one_line(streams: Streams) -> None:
    streams.orders()
    with hr.open(streams.path) as store, store.stream("orders").publisher():
        told = streams.refused("publish", "orders", given=lines_of(ORDERS))
        assert told.startswith("error (publisher_taken): ")
        assert streams.refused("drop", "orders", "--yes").startswith("error (publisher_taken): ")


def test_a_union_is_published_with_the_name_of_the_class(streams: Streams) -> None:
    streams.shapes()
    streams("publish", "shapes", given=b'{"_type": "Square", "side": 9}\n')
    assert streams.rows("shapes", "--from", "3") == [{"_type": "Square", "side": 9.0}]
