"""The command line from the beginning: read this first."""

from __future__ import annotations

from pathlib import Path

from tests.cli.running import headrace, log

from headrace import channel


def test_lines_go_in_and_come_out_as_they_were(tmp_path: Path) -> None:
    queue = tmp_path / "queue"
    assert log("create", queue).text == f"created {queue}: plain bytes\n"
    assert log("append", queue, given=b"one\n\n\xff\xfe\nlast").text == "appended 4 entries from index 0 on\n"
    assert log("cat", queue).out == b"one\n\n\xff\xfe\nlast\n"
    assert log("tail", queue, "-n", "1").out == b"last\n"
    assert log("cat", queue, "--from", "1", "--until", "3").out == b"\n\xff\xfe\n"
    assert log("cat", queue, "--from", "1", "--count", "1", "--index").out == b"1\t\n"


def test_a_typed_log_takes_and_gives_json_lines(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    fields = ("--field", "at:timestamp[us, tz=UTC] not null", "--field", "user:string", "--field", "n:int64")
    log("create", orders, *fields, "--order-by", "at")
    log(
        "append",
        orders,
        given=b'{"at": "2024-07-01T12:00:00Z", "user": "ann", "n": 1}\n\n{"at": "2024-07-02T00:00:00+02:00"}',
    )
    assert log("cat", orders).lines == [
        '{"at":"2024-07-01T12:00:00.000000Z","user":"ann","n":1}',
        '{"at":"2024-07-01T22:00:00.000000Z","user":null,"n":null}',
    ]
    table = log("cat", orders, "--format", "table").text
    assert "index" in table
    assert "ann" in table


def test_what_cat_prints_can_be_appended_to_another_log(tmp_path: Path) -> None:
    fields = ("--field", "data:binary", "--field", "x:float64", "--field", "tags:list<string>")
    log("create", tmp_path / "a", *fields)
    log("create", tmp_path / "b", *fields)
    log("append", tmp_path / "a", given=b'{"data": {"base64": "//4="}, "x": "NaN", "tags": ["a", null]}\n')
    log("append", tmp_path / "a", given=b'{"data": "text", "x": 1, "tags": null}\n')
    first = log("cat", tmp_path / "a").out
    log("append", tmp_path / "b", given=first)
    assert log("cat", tmp_path / "b").out == first


def test_a_file_can_be_one_record(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"two\nlines\n")
    log("append", tmp_path / "queue", file, "--whole", "--create")
    assert log("cat", tmp_path / "queue", "--json").json == {"data": "two\nlines\n"}


def test_bytes_that_are_not_text_are_base64_in_json(tmp_path: Path) -> None:
    log("append", tmp_path / "queue", "--create", given=b"\xff\xfe\n")
    assert log("cat", tmp_path / "queue", "--json", "--index").json == {
        "index": 0,
        "data": {"base64": "//4="},
    }


def test_info_tells_what_create_was_told(tmp_path: Path) -> None:
    words = ("--segment-bytes", "10MB", "--retain-age", "7d", "--retain-bytes", "1G", "--retain-entries", "5")
    log(
        "create",
        tmp_path / "log",
        *words,
        "--durability",
        "os",
        "--compression",
        "zstd",
        "--container-bytes",
        "1MiB",
    )
    log("append", tmp_path / "log", given=b"a\nb\n")
    facts = log("info", tmp_path / "log", "--json").json
    settings = facts["settings"]
    assert (facts["first_index"], facts["next_index"], facts["entries"], facts["segments"]) == (0, 2, 2, 1)
    assert settings["finalize"]["bytes"] == 10_000_000
    assert settings["retention"] == {"age_s": 604_800.0, "bytes": 1 << 30, "entries": 5, "consumed": False}
    assert (settings["durability"], settings["compression"]) == ("os", "zstd")
    assert settings["containers"]["bytes"] == 1 << 20
    text = log("info", tmp_path / "log").text
    for word in ("next index", "segments", "total size", "retain", "1w", "plain bytes", "containers"):
        assert word in text


def test_info_lists_positions_kept_copies_and_foreign_files(tmp_path: Path) -> None:
    with channel(tmp_path / "box", "uploader") as box:
        box.put(b"one")
        box.get(timeout=5)
        box.ack()
    (tmp_path / "box" / "notes.txt").touch()
    (tmp_path / "box" / "kept").mkdir()
    (tmp_path / "box" / "kept" / "old.seg").touch()
    facts = log("info", tmp_path / "box", "--json").json
    assert facts["positions"] == {"uploader": 1}
    assert facts["kept"] == ["old.seg"]
    assert facts["foreign"] == ["notes.txt"]
    text = log("info", tmp_path / "box").text
    assert "position uploader" in text
    assert "kept/old.seg" in text
    assert "notes.txt" in text


def test_trim_removes_the_oldest_entries(tmp_path: Path) -> None:
    log("append", tmp_path / "queue", "--create", given=b"a\nb\nc\n")
    answer = log("trim", tmp_path / "queue", "--before", "2", "--json").json
    assert (answer["removed"], answer["first_index"], answer["next_index"]) == (2, 2, 3)
    assert log("cat", tmp_path / "queue").out == b"c\n"
    assert headrace("log", "cat", tmp_path / "queue", "--from", "1").err.startswith("error (trimmed): ")


def test_trim_can_apply_the_policy_of_the_log(tmp_path: Path) -> None:
    log("create", tmp_path / "queue", "--segment-bytes", "1K", "--retain-entries", "2")
    for data in (b"a\nb\n", b"c\nd\n", b"e\nf\n"):
        log("append", tmp_path / "queue", given=data)
    log("trim", tmp_path / "queue", "--retain")
    assert log("tail", tmp_path / "queue", "-n", "2").out == b"e\nf\n"
    assert log("info", tmp_path / "queue", "--json").json["first_index"] > 0


def test_tail_shows_no_more_than_there_is(tmp_path: Path) -> None:
    log("append", tmp_path / "queue", "--create", given=b"a\nb\n")
    assert log("tail", tmp_path / "queue").out == b"a\nb\n"
    assert log("tail", tmp_path / "queue", "-n", "0").out == b""


def test_bench_measures_beside_a_plain_write() -> None:
    answer = log("bench", "--records", "200", "--size", "20", "--json").json
    assert answer["results"][0]["name"] == "plain os.write"
    assert {result["name"] for result in answer["results"]} >= {"append, one by one", "read as Arrow"}
    assert "plain os.write" in log("bench", "--records", "200").text
