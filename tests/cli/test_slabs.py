"""Classic Queuefka slabs: out of a log and into one, all of it or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import damaged_log, headrace, log


@pytest.mark.parametrize("length", ["4+n", "n"])
def test_a_log_goes_out_and_comes_back_the_same(tmp_path: Path, length: str) -> None:
    log("append", tmp_path / "a", "--create", given=b"one\n\n\xff\xfe\nlast\n")
    out = log(
        "export", tmp_path / "a", tmp_path / "slabs", "--length", length, "--slab-bytes", "16", "--json"
    )
    assert out.json["count"] == 4
    assert len(list((tmp_path / "slabs").glob("*.slab"))) > 1
    assert log("import", tmp_path / "slabs", tmp_path / "b").text.startswith("imported 4 entries ")
    assert log("cat", tmp_path / "b").out == log("cat", tmp_path / "a").out


def test_an_empty_log_goes_out_and_comes_back(tmp_path: Path) -> None:
    log("create", tmp_path / "a")
    log("export", tmp_path / "a", tmp_path / "slabs")
    assert log("import", tmp_path / "slabs", tmp_path / "b", "--json").json["count"] == 0


def test_damaged_slabs_are_read_over_told_and_exit_code_3(tmp_path: Path) -> None:
    log("append", tmp_path / "a", "--create", given=b"one\ntwo\nthree\n")
    log("export", tmp_path / "a", tmp_path / "slabs")
    (slab,) = (tmp_path / "slabs").iterdir()
    slab.write_bytes(slab.read_bytes().replace(b"two", b"tvo"))
    done = headrace("log", "import", tmp_path / "slabs", tmp_path / "b", "--json")
    assert (done.code, done.json["count"]) == (3, 2)
    assert json.loads(done.err)["damage"]["what"] == "a record does not match its checksum"
    assert log("cat", tmp_path / "b").out == b"one\nthree\n"


def test_a_damaged_log_is_exported_only_when_asked_to(tmp_path: Path) -> None:
    path = damaged_log(tmp_path / "a")
    refused = headrace("log", "export", path, tmp_path / "slabs")
    assert refused.code == 1
    assert "--skip-damaged" in refused.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    done = headrace("log", "export", path, tmp_path / "slabs", "--skip-damaged", "--json")
    assert (done.code, done.json["count"]) == (3, 6)


def test_nothing_that_is_there_is_written_over(tmp_path: Path) -> None:
    log("append", tmp_path / "a", "--create", given=b"one\n")
    log("export", tmp_path / "a", tmp_path / "slabs")
    for words in (("export", "a", "slabs"), ("import", "slabs", "a")):
        verb, source, target = words
        refused = headrace("log", verb, tmp_path / source, tmp_path / target)
        assert refused.code == 1
        assert "already" in refused.err
    assert log("cat", tmp_path / "a").out == b"one\n"


def test_only_slabs_are_imported_and_only_plain_bytes_exported(tmp_path: Path) -> None:
    log("create", tmp_path / "typed", "--field", "n:int64")
    refused = headrace("log", "export", tmp_path / "typed", tmp_path / "slabs", "--json")
    assert refused.error["code"] == "schema_mismatch"
    assert (
        headrace("log", "import", tmp_path / "typed", tmp_path / "b", "--json").error["code"] == "not_a_log"
    )
    assert headrace("log", "import", tmp_path / "none", tmp_path / "b", "--json").error["code"] == "not_found"
    assert [entry.name for entry in tmp_path.iterdir()] == ["typed"]
