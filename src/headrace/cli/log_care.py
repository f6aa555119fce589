"""`headrace log info`, `verify` and `repair`: what a log is, whether it is whole, and making it so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import typer

from headrace.cli.console import Console, Exit, aligned, printable
from headrace.cli.log_open import LogPath, is_raw, open_to_read
from headrace.cli.options import Json
from headrace.cli.quantities import format_duration, format_size, plural
from headrace.log import LogInfo, Report, Settings
from headrace.log import repair as repair_log
from headrace.wire.fields import describe_field, describe_schema


def info(path: LogPath, json: Json = False) -> None:
    """Say what a log holds and how it is set."""
    with open_to_read(path) as log:
        found = log.info()
    facts = {name: getattr(found, name) for name in LogInfo.__slots__} | {
        "path": printable(path),
        "entries": found.entries,
        "raw": is_raw(found.schema),
        "schema": describe_schema(found.schema),
    }
    Console(json).answer(facts, aligned(_info_facts(found)))


def verify(path: LogPath, json: Json = False) -> None:
    """Read and check every byte.

    What is damaged, and exactly which entries are lost, is listed; the exit code is then 3.
    """
    console = Console(json)
    with open_to_read(path) as log, console.progress("verifying") as advance:
        report = log.verify(advance)
    tell_report(console, path, report)


def tell_report(console: Console, path: Path | str, report: Report) -> None:
    """Print what a check found, and end with exit code 3 if that is damage."""
    summary = (
        f"{plural(report.entries, 'entry', 'entries')} in {plural(report.batches, 'batch', 'batches')}, "
        f"{plural(report.segments, 'segment')}, {format_size(report.bytes)}"
    )
    lines = [f"{path}: whole: {summary}"] if report.ok else [f"{path}: damaged: {summary} can be read"]
    lines += [f"  {damage}" for damage in report.damages]
    if not report.ok:
        lines.append(f"lost: {_lost(report)}")
    console.answer({"path": printable(path), **_report_facts(report)}, "\n".join(lines))
    if not report.ok:
        raise typer.Exit(Exit.DAMAGE)


def repair(path: LogPath, json: Json = False) -> None:
    """Make a damaged log whole again.

    What can be read stays, under the same indexes; every file that is replaced is kept in kept/.
    """
    console = Console(json)
    with console.progress("repairing") as advance:
        report = repair_log(path, progress=advance)
    after = report.after
    assert after is not None
    facts = {
        "path": printable(path),
        "found": report.found,
        "restored_meta": report.restored_meta,
        "rewritten": report.rewritten,
        "kept": report.kept,
        "after": _report_facts(after),
    }
    lines = [f"found: {damage}" for damage in report.found]
    lines += ["restored: meta.json"] if report.restored_meta else []
    lines += [f"rewritten: {name}" for name in report.rewritten]
    lines += [f"kept: {name}" for name in report.kept]
    lines += [f"still damaged: {damage}" for damage in after.damages]
    changed = report.found or report.restored_meta or report.rewritten or report.kept
    verdict = "still damaged" if not after.ok else "repaired" if changed else "whole, nothing to repair"
    lines.append(f"{path}: {verdict}: {plural(after.entries, 'entry', 'entries')}")
    console.answer(facts, "\n".join(lines))
    if not after.ok:
        raise typer.Exit(Exit.DAMAGE)


def _info_facts(found: LogInfo) -> list[tuple[str, object]]:
    fields = ["plain bytes"] if is_raw(found.schema) else [describe_field(field) for field in found.schema]
    facts: list[tuple[str, object]] = [("path", found.path), ("id", found.id)]
    facts += [("field" if not at else "", field) for at, field in enumerate(fields)]
    facts += [
        ("order by", found.order_by or "index"),
        ("entries", found.entries),
        ("first index", found.first_index),
        ("next index", found.next_index),
        ("durable until", found.durable_index),
        ("segments", found.segments),
        ("total size", format_size(found.bytes)),
        ("writer epoch", found.epoch),
    ]
    facts += settings_facts(found.settings, found.free_containers)
    facts += [(f"position {name}", index) for name, index in found.positions.items()]
    facts += [("kept copy", Path("kept", name)) for name in found.kept]
    facts += [("foreign file", name) for name in found.foreign]
    return facts


def settings_facts(settings: Settings, free_containers: int) -> list[tuple[str, object]]:
    """The settings of a log, line by line."""
    finalize, retention, containers = settings.finalize, settings.retention, settings.containers
    kept: list[str] = []
    if retention.age_s is not None:
        kept.append(format_duration(retention.age_s))
    if retention.bytes is not None:
        kept.append(format_size(retention.bytes))
    if retention.entries is not None:
        kept.append(plural(retention.entries, "entry", "entries"))
    if retention.consumed:
        kept.append("until consumed")
    facts: list[tuple[str, object]] = [
        ("durability", settings.durability),
        ("compression", settings.compression),
        (
            "new segment after",
            f"{format_size(finalize.bytes)}, {plural(finalize.entries, 'entry', 'entries')} "
            f"or {format_duration(finalize.age_s)}",
        ),
        ("retain", ", ".join(kept) or "everything"),
    ]
    if containers is not None:
        limit = "" if containers.limit is None else f", {containers.limit} at most"
        facts.append(("containers", f"{format_size(containers.bytes)} each, {free_containers} free{limit}"))
    return facts


def _report_facts(report: Report) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(report)
    return facts | {"ok": report.ok, "lost": [list(pair) for pair in report.lost]}


def _lost(report: Report) -> str:
    ranges = [
        f"{first} and all after it"
        if stop is None
        else str(first)
        if stop == first + 1
        else f"{first} to {stop - 1}"
        for first, stop in report.lost
    ]
    return f"entries {', '.join(ranges)}" if ranges else "no entry"
