"""`headrace journal ls`, `stats` and `watch`: what journals hold, and what happens in them.

Nothing here needs the journal's lock: another process may work with it. What is told is what its files say at
this moment.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from headrace.cli.console import Advance, Console, Exit, aligned, printable
from headrace.cli.journal_on_node import OnNode
from headrace.cli.journal_open import JournalName, Place, connected
from headrace.cli.journal_shown import event_facts, event_line, shown_data, shown_time
from headrace.cli.journal_verbs import log_path
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import format_size
from headrace.cli.stream_open import opened_store
from headrace.journal import Type
from headrace.journal.checks import RESERVED
from headrace.journal.events import from_batch
from headrace.journal.reading import read_state
from headrace.journal.rows import JobRow, Where
from headrace.journal.state import State
from headrace.journal.value import decode
from headrace.kernel.clock import SystemClock
from headrace.kernel.errors import HeadraceError
from headrace.log import Log
from headrace.log.copy import Origin

_COLUMNS = ("name", "pending", "leased", "dead", "values", "bytes")
_JOB_COLUMNS = ("id", "state", "priority", "due", "attempts", "until", "resource", "value")
JobState = Literal["pending", "leased", "dead"]


@with_options
def ls(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="List the jobs of this journal instead.", show_default=False),
    ] = None,
    *,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.")] = None,
    count: Annotated[int | None, typer.Option(min=0, metavar="N", help="At most so many jobs.")] = None,
    place: Place,
    json: Json = False,
) -> None:
    """List the journals, or the jobs of one.

    A journal that cannot be read is told on stderr; the exit code is then 3.

    Example: headrace journal ls pages --state dead
    """
    console = Console(json)
    if not name and (state is not None or count is not None):
        raise typer.BadParameter("it is about jobs: name the journal", param_hint="--state")
    if place.on_node:
        with place.node() as node:
            if name:
                _show_jobs(name, state, OnNode(node, name, console).job_rows(state, count), console)
            else:
                counted = ((each, OnNode(node, each, console).counted) for each in node.journals())
                _list_journals(node.url, list(counted), console)
        return
    place.check_local("ls")
    with opened_store(place.store) as opened:
        if name:
            with console.progress("reading") as advance:
                rows = list(_job_rows(log_path(opened, name), state, count, advance))
            _show_jobs(name, state, rows, console)
        else:
            files = [(each, partial(_counted, log_path(opened, each))) for each in opened.journals()]
            _list_journals(opened.path, files, console)


@with_options
def stats(name: JournalName, place: Place, json: Json = False) -> None:
    """Count what a journal holds: jobs by state, priority and domain, values, and the size of its log.

    Example: headrace journal stats pages --json
    """
    console = Console(json)
    if place.on_node:
        with place.node() as node:
            facts = {"name": name, **OnNode(node, name, console).counted()}
    else:
        place.check_local("stats")
        with opened_store(place.store) as opened, console.progress("reading"):
            facts = {"name": name, **_counted(log_path(opened, name))}
    lines: list[tuple[str, object]] = []
    for fact, value in facts.items():
        title = fact.replace("_", " ")
        if isinstance(value, dict):
            lines += [(f"{title.removeprefix('by ')} {each or '-'}", count) for each, count in value.items()]
        elif fact == "log_bytes":
            lines.append(("log size", format_size(value)))
        else:
            lines.append((title, "-" if value is None else value))
    console.answer(facts, aligned(lines))


@dataclass(frozen=True, slots=True)
class Watching:
    """Where to begin, and when to stop."""

    start: Annotated[
        str, typer.Option("--from", metavar="INDEX|start|end", help="Begin at this event of the log.")
    ] = "end"
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many.")] = None


@with_options
def watch(
    name: JournalName,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="Only this key or resource; a server needs one.")
    ] = None,
    *,
    watching: Watching,
    place: Place,
    json: Json = False,
) -> None:
    """Print what happens in a journal, an event a line, until interrupted.

    Another process may work with the journal; what it does is seen within about a second. What is kept in
    memory only is not seen. A server tells which key has changed, and what type its value has now.

    Example: headrace journal watch pages --from start
    """
    console = Console(json)
    if place.on_node:
        with place.node() as node:
            changes = OnNode(node, name, console).changes(_one_key(key, watching))
            _tell_changes(changes, key, watching.count, console)
        return
    if place.server is not None:
        with connected(place.server) as client:
            client.listen(_one_key(key, watching))
            _tell_changes(((push.key, push.type) for push in client.pushes()), key, watching.count, console)
        return
    with opened_store(place.store) as opened, Log.open(log_path(opened, name), read_only=True) as log:
        left = watching.count
        for facts in _events(log, _parse_start(watching.start, log)):
            if key is not None and facts.get("key") != key:
                continue
            line = msgspec.json.encode(facts) if console.json else printable(event_line(facts)).encode()
            console.write(line + b"\n", flush=True)
            left = None if left is None else left - 1
            if left == 0:
                return


def _list_journals(
    place: object, journals: Sequence[tuple[str, Callable[[], dict[str, Any]]]], console: Console
) -> None:
    """Each by its name, and what counts it."""
    rows, failed = list[dict[str, object]](), False
    with console.progress("looking") as advance:
        for done, (name, counted) in enumerate(journals):
            advance(done, len(journals))
            try:
                facts = counted()
            except HeadraceError as error:
                console.note(f"journal {name!r} cannot be read ({error.code}): {error}")
                failed = True
                continue
            facts |= {"name": name, "bytes": facts["log_bytes"]}
            rows.append({column: facts[column] for column in _COLUMNS})
    if console.json:
        console.answer({"store": printable(str(place)), "journals": rows}, "")
    elif rows:
        console.table(_COLUMNS, [list(row.values()) for row in rows])
    elif not failed:
        console.note(f"{place} has no journals yet: make one with `headrace journal create` or `put`")
    if failed:
        raise typer.Exit(Exit.DAMAGE)


def _show_jobs(
    name: str, state: JobState | None, rows: Sequence[tuple[object, ...]], console: Console
) -> None:
    if console.json:
        for row in rows:
            console.write(msgspec.json.encode(dict(zip(_JOB_COLUMNS, row, strict=True))) + b"\n")
    elif rows:
        console.table(_JOB_COLUMNS, [["-" if cell is None else cell for cell in row] for row in rows])
    else:
        console.note(f"the journal {name!r} has no {f'{state} ' if state else ''}jobs")


def _job_rows(
    log: Path, state: JobState | None, count: int | None, advance: Advance
) -> Iterator[tuple[object, ...]]:
    jobs = read_state(log.parent).jobs
    found = [row for row in jobs.rows() if state is None or state_of(row) == state]
    found.sort(key=lambda row: (row.where == Where.DEAD, row.priority, row.due, row.id))
    for done, row in enumerate(found[:count]):
        if done % 1000 == 0:
            advance(done, len(found))
        yield (
            row.id,
            state_of(row),
            row.priority,
            shown_time(row.due),
            row.attempts,
            shown_time(row.lease or None),
            printable(row.resource.decode("utf-8", "surrogateescape")),
            shown_data(decode(row.type, row.value or b"")),
        )


def state_of(row: JobRow) -> JobState:
    return "leased" if row.where == Where.LEASED else "dead" if row.where == Where.DEAD else "pending"


def _counted(log: Path) -> dict[str, Any]:
    """What the files of a journal say."""
    state: State = read_state(log.parent)
    jobs, now = state.jobs, SystemClock().now_us()
    with Log.open(log, read_only=True) as opened:
        info = opened.info()
    origin = Origin.of(opened.meta)
    domains = Counter(printable(row.domain) for row in jobs.pending.values())
    ranks = Counter(row.priority for row in jobs.pending.values())
    waiting = [row for row in jobs.pending.values() if row.where == Where.PENDING]
    return {
        "pending": len(jobs.pending),
        "ready": sum(row.due <= now for row in waiting),
        "leased": len(jobs.leased),
        "overdue": sum(row.lease <= now for row in jobs.leased.values()),
        "dead": len(jobs.dead),
        "values": sum(not key.startswith(RESERVED) for key in state.values.by_key),
        "oldest_due": shown_time(min((row.due for row in jobs.pending.values()), default=None)),
        "by_priority": {str(priority): n for priority, n in sorted(ranks.items())},
        "by_domain": dict(domains.most_common()),
        "log_events": info.entries,
        "log_bytes": info.bytes,
        **({} if origin is None else {"copy_of": str(origin)}),
    }


def _events(log: Log, start: int) -> Iterator[dict[str, Any]]:
    for batch in log.read(start, follow=True):
        part = batch.slice(start)
        for index, event in enumerate(from_batch(part.records), part.base_index):
            if event.key is not None and event.key.startswith(RESERVED):
                continue  # the journal's own
            yield event_facts(index, event._asdict())


def _parse_start(text: str, log: Log) -> int:
    if text.isascii() and text.isdigit():
        return max(int(text), log.first_index)
    match text:
        case "start":
            return log.first_index
        case "end":
            return log.next_index
    raise typer.BadParameter(f"{text!r} is not an index, 'start' or 'end'", param_hint="--from")


def _one_key(key: str | None, watching: Watching) -> str:
    if key is None:
        raise typer.BadParameter("a server tells of one key: which?", param_hint="KEY")
    if watching.start != "end":
        raise typer.BadParameter("a server tells what happens from now on", param_hint="--from")
    return key


def _tell_changes(
    changes: Iterator[tuple[str, int]], key: str | None, count: int | None, console: Console
) -> None:
    console.note(f"listening to {key!r}")
    for name, number in islice(changes, count):
        kind = Type(number).name.lower() if number in set(Type) else str(number)
        console.answer({"key": printable(name), "type": kind}, f"{name}\t{kind}")
        sys.stdout.flush()
