"""Running `headrace`: inside this process (quick), or as one of its own (real)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from headrace.cli.app import app

COMMAND = [sys.executable, "-m", "headrace.cli.app"]


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def json(self) -> Any:
        """The answer, which is one JSON object and nothing else."""
        (line,) = self.lines
        return json.loads(line)

    @property
    def error(self) -> dict[str, str]:
        """The error of a command that was run with --json: the one line on stderr."""
        (line,) = self.err.splitlines()
        found: dict[str, str] = json.loads(line)["error"]
        return found


def headrace(*words: str | Path, given: bytes = b"") -> Outcome:
    """What `headrace <words>` does, in this process."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=given, prog_name="headrace")
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


def run_process(*words: str | Path, given: bytes = b"") -> Outcome:
    """The same as a process of its own."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)], input=given, capture_output=True, timeout=60, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode())


def log(*words: str | Path, given: bytes = b"") -> Outcome:
    """`headrace log <words>`, which must succeed."""
    outcome = headrace("log", *words, given=given)
    assert outcome.code == 0, outcome
    return outcome


def damaged_log(path: Path) -> Path:
    """Eight entries, two a segment, of which the entries 2 and 3 can no longer be read."""
    log("create", path, "--segment-bytes", "1K")
    for number in range(4):
        log("append", path, given=b"record %da\nrecord %db\n" % (number, number))
    segment = sorted(path.glob("*.seg"))[1]
    content = bytearray(segment.read_bytes())
    content[content.index(b"record 1a")] ^= 0xFF
    segment.write_bytes(content)
    return path


@contextmanager
def service(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until it is told to end, as a process."""
    command = [*COMMAND, *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
