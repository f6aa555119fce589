"""Errors: one line that says what happened and what to do, and nothing changed."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.cli.running import headrace, log

from headrace.cli import log_care
from headrace.cli.app import wants_json
from headrace.log import Log


def _is_refused(code: str, *words: str | Path, given: bytes = b"") -> str:
    """Check that a command fails properly in both forms; its message."""
    plain = headrace("log", *words, given=given)
    assert (plain.code, plain.out) == (1, b""), plain
    assert plain.err.startswith(f"error ({code}): ")
    assert plain.err.count("\n") == 1
    machine = headrace("log", *words, "--json", given=given)
    assert (machine.code, machine.out, machine.error["code"]) == (1, b"", code)
    assert plain.err == f"error ({code}): {machine.error['message']}\n"
    return plain.err


@pytest.mark.parametrize("verb", ["append", "cat", "tail", "info", "verify", "repair"])
def test_an_unknown_path_is_one_line_and_exit_code_1(tmp_path: Path, verb: str) -> None:
    assert "there is no log at" in _is_refused("not_found", verb, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("verb", ["append", "cat", "tail", "info", "verify", "repair"])
def test_a_directory_that_is_no_log_is_left_alone(tmp_path: Path, verb: str) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    _is_refused("not_a_log", verb, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.txt"]


def test_append_creates_nothing_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    _is_refused("not_a_log", "append", tmp_path, "--create", given=b"x\n")
    _is_refused("not_a_log", "create", tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.txt"]


def test_a_log_is_not_created_twice(tmp_path: Path) -> None:
    log("create", tmp_path / "a")
    before = log("info", tmp_path / "a").text
    assert "is a log already" in _is_refused("refused", "create", tmp_path / "a", "--retain-age", "1s")
    assert log("info", tmp_path / "a").text == before


def test_an_input_that_is_not_there_creates_no_log(tmp_path: Path) -> None:
    _is_refused("not_found", "append", tmp_path / "a", tmp_path / "none", "--create")
    assert not (tmp_path / "a").exists()


def test_a_log_that_is_being_written_is_not_appended_to(tmp_path: Path) -> None:
    log("create", tmp_path / "a")
    with Log.open(tmp_path / "a"):
        _is_refused("writer_taken", "append", tmp_path / "a", given=b"x\n")
        assert log("cat", tmp_path / "a").out == b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--field", "user"), "is not name:type"),
        (("--field", "user:strong"), "is not an Arrow type"),
        (("--field", "at:timestamp[us, tz=Nowhere]"), "is not a time zone"),
        (("--field", "a:int64", "--field", "a:string"), "given twice"),
        (("--segment-bytes", "5Q"), "is not a size"),
        (("--retain-age", "5"), "is not a duration"),
        (("--durability", "maybe"), "'fsync'"),
    ],
)
def test_wrong_options_of_create_are_usage_errors(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    wrong = headrace("log", "create", tmp_path / "a", *words)
    assert wrong.code == 2
    assert wrong.err.startswith("error (usage): ")
    assert said in wrong.err
    assert wrong.err.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_settings_that_cannot_be_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    _is_refused("bad_settings", "create", tmp_path / "a", "--segment-bytes", "0")
    _is_refused("bad_settings", "create", tmp_path / "a", "--field", "a:string", "--order-by", "a")
    _is_refused("bad_settings", "create", tmp_path / "a", "--field", "a:string", "--order-by", "b")
    assert not (tmp_path / "a").exists()


def test_options_that_exclude_each_other_are_usage_errors(tmp_path: Path) -> None:
    log("append", tmp_path / "a", "--create", given=b"x\n")
    for words in (("trim",), ("trim", "--before", "1", "--retain"), ("cat", "--json", "--format", "table")):
        verb, *options = words
        assert headrace("log", verb, tmp_path / "a", *options).code == 2


def test_an_error_with_several_lines_becomes_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(path: Path) -> Log:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr(log_care, "open_to_read", fail)
    shown = _is_refused("internal", "info", tmp_path)
    assert "RuntimeError: first second: this is a bug in headrace" in shown


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(path: Path) -> Log:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_care, "open_to_read", interrupt)
    assert headrace("log", "info", tmp_path).code == 130


def test_warnings_of_the_library_are_notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def warn(path: Path) -> Log:
        logging.getLogger("headrace.log").warning("careful with %s", path.name)
        return Log.open(path, read_only=True)

    log("create", tmp_path / "a")
    monkeypatch.setattr(log_care, "open_to_read", warn)
    assert headrace("log", "info", tmp_path / "a").err == "warning: careful with a\n"
    assert headrace("log", "info", tmp_path / "a", "--json").err == '{"note":"warning: careful with a"}\n'


def test_json_is_only_wanted_before_the_end_of_options() -> None:
    assert wants_json(["log", "info", "--json", "a"])
    assert not wants_json(["log", "info", "--", "--json"])


@pytest.mark.parametrize(
    "words", [("log", "info", "{}/log"), ("log", "import", "{}/log", "{}/new"), ("doctor", "--store", "{}")]
)
def test_what_may_not_be_read_is_told_by_opening_it_and_is_no_wrong_usage(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    log("create", tmp_path / "log")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "error (usage)" not in headrace(*(word.format(tmp_path) for word in words)).err
