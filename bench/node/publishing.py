"""Publishing one entry a call through each client, until the last is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.measure import Aim, Run, Table
from bench.node.contender import Contender
from bench.node.contenders import UNSYNCED, Contenders, beside, entry_count, entry_rates
from bench.node.entries import KINDS, Kind, entries, fresh_name
from bench.node.redis_streams import GROUP


def run(run: Run, there: Contenders) -> Iterator[Table]:
    table = Table(
        "Publishing through a node, one entry a call",
        "Until all are acknowledged, which is after a sync: headrace by default; Redis with appendonly and "
        f"appendfsync always, pipelines of {GROUP:,}; NATS by publish_async, 4,000 on their way, into a "
        "directory whose files the kernel syncs at every write (chattr +S: before 2.10 it has no option for "
        f"it). {UNSYNCED}: as it comes, its files are synced every two minutes, and acknowledged before. "
        f"5 fields: objects; the peers get msgspec's JSON. {there.versions}.",
    )
    for kind in KINDS.values():
        run.say(f"publishing {kind.what} through a node")
        rate = entry_rates(run, there, partial(_publish, run, kind))
        table.figures += beside(f"publish, {kind.what}", rate, "entries/s", Aim(ratio=10))
    yield table


def _publish(run: Run, kind: Kind, contender: Contender) -> float:
    """Seconds an entry."""
    count = entry_count(run, contender)
    stream = fresh_name()
    contender.make(stream, kind)
    return contender.publish(stream, kind, entries(kind.what, count)) / count
