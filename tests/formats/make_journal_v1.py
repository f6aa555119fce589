"""Made the journal in `journal_v1/`, once. It is kept for ever: run this only to add to it.

    .venv/bin/python -m tests.formats.make_journal_v1 <new directory>

A journal as kill -9 leaves it: a part of its events is in the log, swept once, the rest in the tail. Ids
and times are fixed, so that the same headrace makes the same bytes.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import uuid
from pathlib import Path
from unittest import mock

from headrace.journal import Journal, JournalSettings, ledger, open_journal, sweep
from headrace.kernel.clock import ManualClock

ID = uuid.UUID("00112233445566778899aabbccddeeff")
START_US = 1_700_000_000_000_000
SETTINGS = JournalSettings(max_attempts=2, history="forever")


def fill(journal: Journal, clock: ManualClock) -> None:
    """Every kind of event."""
    journal.put("https://a.org/dead", priority=1)
    journal.put("revived", priority=3)
    for _ in range(4):
        journal.next().fail(0)
    journal.redrive(["revived"])
    journal.put("https://a.org/leased", priority=2, value=b"payload")
    journal.next(lease="1h").extend("2h")
    journal.put("https://a.org/leased", value="beside")
    journal.put("later", after="3h", ttl="5h", value=7)
    journal.put("done", priority=1)
    journal.next(delete=True)
    journal.put("dropped")
    journal.cancel("dropped")
    journal.set("a", "text", ttl="2h")
    journal.link("a", "b")
    journal.get("b", lease="1h")
    clock.advance(1)
    journal.get("a", touch=True)
    journal.set("gone", 1)
    journal.delete("gone")
    journal.set("erased", 1.5)
    journal.delete("erased", now=True)
    journal.engine._ledger.pour()
    for number in range(12):
        journal.set("n", number)
    journal.engine._ledger.pour()
    journal.engine._care()  # the sweep says again what is alive
    clock.advance(1)
    journal.put("in the tail", priority=0)
    journal.next(lease=1)
    clock.advance(2)
    journal.next("nobody")  # its lease has ended
    journal.set("flag", True)
    journal.rename("n", "renamed")


def make(directory: Path) -> Path:
    """Write the golden journal as today's headrace does."""
    clock = ManualClock(START_US)
    with (
        mock.patch("uuid.uuid4", return_value=ID),
        mock.patch.object(ledger.Ledger, "start"),
        mock.patch.object(sweep, "_SLACK_EVENTS", 0),
        mock.patch.object(sweep, "_STEP_EVENTS", 8),
        open_journal(directory / "open", SETTINGS, clock=clock) as journal,
    ):
        fill(journal, clock)
        shutil.copytree(directory / "open", directory / "journal")
    shutil.rmtree(directory / "open")
    (directory / "journal" / "log" / "lock").unlink()  # it names a process
    return directory / "journal"


def main(directory: Path) -> None:
    for file in make(directory).rglob("*"):
        if file.is_file() and file.stat().st_size > 100_000:
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
            file.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
