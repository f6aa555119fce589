"""The program as a process: pipes, signals, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.cli.running import COMMAND, log, run_process


def test_an_unknown_path_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    failed = run_process("log", "info", tmp_path / "none")
    assert (failed.code, failed.out) == (1, b"")
    assert failed.err.startswith("error (not_found): ")
    assert failed.err.count("\n") == 1


def test_bytes_pass_through_untouched(tmp_path: Path) -> None:
    data = bytes(range(256)) + b"\n" + bytes(range(256))
    assert run_process("log", "append", tmp_path / "a", "--create", given=data).code == 0
    assert log("cat", tmp_path / "a").out == data + b"\n"


@pytest.mark.parametrize("form", ["lines", "json", "table"])
def test_a_reader_that_has_enough_is_no_error(tmp_path: Path, form: str) -> None:
    log("append", tmp_path / "a", "--create", given=b"some longer line\n" * 20_000)
    process = subprocess.Popen(
        [*COMMAND, "log", "cat", str(tmp_path / "a"), "--format", form],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() != b""
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141
    process.stderr.close()


def test_follow_shows_what_comes_and_ends_with_130_when_interrupted(tmp_path: Path) -> None:
    log("append", tmp_path / "a", "--create", given=b"old\nlast\n")
    command = [*COMMAND, "log", "tail", str(tmp_path / "a"), "-n", "1", "-f"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"last\n"
        log("append", tmp_path / "a", given=b"new\n")
        assert process.stdout.readline() == b"new\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(tmp_path: Path) -> None:
    log("create", tmp_path / "a")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "log", "info", str(tmp_path / "a")],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"error (io): ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("command", "how"),
    [("log cat", ">&-"), ("log info", ">&-"), ("log append", "<&-"), ("log cat", ">&- <&-")],
)
def test_a_closed_stdin_or_stdout_is_one_line(tmp_path: Path, command: str, how: str) -> None:
    log("append", tmp_path / "a", "--create", given=b"line\n")
    words = " ".join([*COMMAND, command, str(tmp_path / "a"), how])
    done = subprocess.run(words, shell=True, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error (io): ")
    assert done.stderr.count(b"\n") == 1
    assert log("cat", tmp_path / "a").out == b"line\n"


def test_a_closed_stderr_changes_nothing(tmp_path: Path) -> None:
    words = " ".join([*COMMAND, "log", "append", str(tmp_path / "a"), "--create", "2>&-"])
    assert subprocess.run(words, shell=True, input=b"line\n", timeout=60, check=False).returncode == 0
    assert log("cat", tmp_path / "a").out == b"line\n"


def test_names_that_are_not_utf8_can_be_used(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    command = [*COMMAND, "log", "create", os.fsencode(path), "--json"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert path.is_dir()
