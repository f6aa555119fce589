"""`headrace journal put`, `next`, `done` and `fail`: the life of a job, a command a step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from headrace.cli.console import Console, printable
from headrace.cli.journal_open import JournalName, Place
from headrace.cli.journal_shown import ValueType, job_facts, parse_data, shown_time
from headrace.cli.journal_verbs import Named, Put, Take, Verbs
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import parse_duration, plural
from headrace.journal import Job
from headrace.kernel.errors import NotFound

_TOGETHER = 10_000
"""Jobs of a file that are put, and synced, at once."""

JobName = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Its id, as `next` printed it, or its resource.", show_default=False),
]
ByResource = Annotated[bool, typer.Option("--resource", help="JOB is its resource, even if it is a number.")]
LeaseUntil = Annotated[
    int | None,
    typer.Option(metavar="US", help="Only if its lease ends then: the lease_until_us of `next --json`."),
]


@dataclass(frozen=True, slots=True)
class Putting:
    """The options of a new job."""

    priority: Annotated[int, typer.Option(min=0, max=255, help="The smallest is worked on first.")] = 128
    after: Annotated[
        float | None, typer.Option(parser=parse_duration, metavar="TIME", help="Due after 10s, 2h, …")
    ] = None
    domain: Annotated[
        str | None, typer.Option(help="Its domain.", show_default="the host of the resource, if it is a URI")
    ] = None
    value: Annotated[str | None, typer.Option(help="What the worker is told besides; - is stdin.")] = None
    type: Annotated[ValueType, typer.Option(help="The type of the value.")] = "string"
    ttl: Annotated[
        float | None, typer.Option(parser=parse_duration, metavar="TIME", help="Forget it after so long.")
    ] = None
    volatile: Annotated[bool, typer.Option("--volatile", help="In memory only, on a server.")] = False

    def how(self) -> Put:
        value = None if self.value is None else parse_data(self.value, self.type)
        return Put(self.priority, self.after, self.domain, self.ttl, not self.volatile, value)


@with_options
def put(
    name: JournalName,
    resource: Annotated[
        str | None, typer.Argument(metavar="RESOURCE", help="What to work on: a URI, or any text.")
    ] = None,
    *,
    file: Annotated[str | None, typer.Option(metavar="FILE|-", help="Put many: one resource a line.")] = None,
    putting: Putting,
    place: Place,
    json: Json = False,
) -> None:
    """Ask for work on a resource.

    A pending job of that resource is updated, not doubled. The journal is made if there is none. All is on
    the disk when this ends.

    Example: headrace journal put pages https://example.com/a --priority 10 --after 10s
    """
    if (resource is None) == (file is None):
        raise typer.BadParameter("give either a RESOURCE or --file", param_hint="RESOURCE")
    if file is not None and (putting.ttl is not None or putting.volatile):
        raise typer.BadParameter("--ttl and --volatile are for one job at a time", param_hint="--file")
    if file == "-" and putting.value == "-":
        raise typer.BadParameter("stdin cannot be both the resources and the value", param_hint="--value")
    place.check_volatile(putting.volatile)
    console, how = Console(json), putting.how()
    with place.opened(name, console) as journal:
        if resource is not None:
            id_ = journal.put(resource, how)
            facts: dict[str, Any] = {"id": id_, "resource": printable(resource)}
            number = "" if id_ is None else f" {id_}"
            console.answer(facts, f"put job{number}: {resource}")
        else:
            assert file is not None
            count = _put_file(journal, file, how, console)
            console.answer({"count": count}, f"put {plural(count, 'job')}")


@with_options
def next_job(
    name: JournalName,
    *,
    domain: Annotated[str | None, typer.Option(help="Of this domain only.", show_default="any")] = None,
    lease: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Nobody else gets it for so long.",
            show_default="what the journal says",
        ),
    ] = None,
    wait: Annotated[
        float | None, typer.Option(parser=parse_duration, metavar="TIME", help="Wait so long for one.")
    ] = None,
    done: Annotated[bool, typer.Option("--done", help="Take it for good: it is finished at once.")] = False,
    place: Place,
    json: Json = False,
) -> None:
    """Take the next job that is due; print its id and its resource.

    It is leased: finish it with `done`, or give it back with `fail`; else it comes back when the lease ends.
    Where there is nothing to work on, the exit code is 1. A server does not tell ids: name the resource.

    Example: headrace journal next pages --lease 2h --wait 10s
    """
    console = Console(json)
    with place.opened(name, console) as journal:
        found = journal.next(Take(domain, lease, wait, done))
    if not isinstance(found, Job):
        due = f"; the next job may be due at {shown_time(found.next_at_us)}" if found.next_at_us else ""
        raise NotFound(f"there is nothing to work on now{due}")
    facts = job_facts(found)
    console.answer(facts, f"{'-' if facts['id'] is None else facts['id']}\t{found.resource}")


@with_options
def done(
    name: JournalName,
    job: JobName,
    *,
    resource: ByResource = False,
    lease_until: LeaseUntil = None,
    place: Place,
    json: Json = False,
) -> None:
    """Say that a leased job is done; it is gone.

    A number is taken for an id. If it is the resource, say so with --resource.

    Example: headrace journal done pages 17
    """
    console = Console(json)
    with place.opened(name, console) as journal:
        journal.done(Named(job, resource), lease_until)
    console.answer({"job": printable(job), "done": True}, f"done: {job}")


@with_options
def fail(
    name: JournalName,
    job: JobName,
    *,
    resource: ByResource = False,
    retry_in: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Due again after so long.",
            show_default="a time that grows with its attempts",
        ),
    ] = None,
    lease_until: LeaseUntil = None,
    place: Place,
    json: Json = False,
) -> None:
    """Give a leased job back: it failed.

    One that has failed too often is put aside as dead, if the journal has a limit; see `redrive`.

    A number is taken for an id. If it is the resource, say so with --resource. A server needs --lease-until.

    Example: headrace journal fail pages 17 --retry-in 1m
    """
    console = Console(json)
    with place.opened(name, console) as journal:
        journal.fail(Named(job, resource), lease_until, retry_in)
    console.answer({"job": printable(job), "failed": True}, f"failed: {job}")


def _put_file(journal: Verbs, file: str, how: Put, console: Console) -> int:
    with _opened(file) as (source, size), console.progress("putting") as advance:

        def groups() -> Iterator[list[str]]:
            done = 0
            while lines := list(islice(source, _TOGETHER)):
                yield [_resource(line) for line in lines if line.strip()]
                done += sum(map(len, lines))
                if size:
                    advance(done, size)

        return journal.put_many(groups(), how)


def _resource(line: bytes) -> str:
    return line.strip().decode("utf-8", "surrogateescape")


@contextmanager
def _opened(file: str) -> Iterator[tuple[BinaryIO, int]]:
    """The file, and its size if it is known."""
    if file == "-":
        yield sys.stdin.buffer, 0
    else:
        with Path(file).open("rb") as source:
            yield source, Path(file).stat().st_size
