"""What a node tells Prometheus: gathered from the node when it is asked, kept nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.journal.journal import Journal
from headrace.kernel.errors import HeadraceError
from headrace.server.http_door import Door
from headrace.server.node import Following, Node
from headrace.server.stream_desk import Copying, StreamDesk

S = TypeVar("S")
T = TypeVar("T")


class NodeMetrics(Collector):
    def __init__(self, node: Node, door: Callable[[], Door]) -> None:
        self._node = node
        self._door = door
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("headrace_requests", "requests over HTTP", self._node.requests)
        refused = CounterMetricFamily("headrace_refused", "requests that were refused", labels=["code"])
        for code, count in sorted(self._node.refused.items()):
            refused.add_metric([code], count)
        yield refused
        yield GaugeMetricFamily("headrace_requests_under_way", "requests under way", self._node.under_way)
        yield from self._connections()
        yield from self._streams()
        yield from self._copies()
        yield from self._journals()

    def _connections(self) -> Iterator[Metric]:
        door = self._door()
        yield GaugeMetricFamily("headrace_connections", "connections", door.connections)
        yield CounterMetricFamily(
            "headrace_connections_refused", "connections that were one too many", door.refused
        )
        yield CounterMetricFamily("headrace_connections_cut", "connections that were too slow", door.cut)
        yield GaugeMetricFamily("headrace_held_bytes", "bytes of requests being taken", door.held_bytes)

    def _streams(self) -> Iterator[Metric]:
        entries = CounterMetricFamily("headrace_entries", "entries published", labels=["stream"])
        size = CounterMetricFamily("headrace_bytes", "bytes published", labels=["stream"])
        syncs = HistogramMetricFamily("headrace_sync_seconds", "time of each sync", labels=["stream"])
        readers = GaugeMetricFamily("headrace_followers", "readers under way", labels=["stream"])
        lag = GaugeMetricFamily(
            "headrace_follower_lag", "entries that the slowest follower has yet to get", labels=["stream"]
        )
        end = GaugeMetricFamily("headrace_next_index", "where the stream ends", labels=["stream"])
        up = GaugeMetricFamily("headrace_stream_up", "0 if it cannot be read now", labels=["stream"])
        for desk in self._node.desks:
            name, there = [desk.stream.name], _unless_failed(_end, desk)
            entries.add_metric(name, desk.published_entries)
            size.add_metric(name, desk.published_bytes)
            syncs.add_metric(name, desk.sync_times.buckets(), desk.sync_times.total_s)
            readers.add_metric(name, desk.followers)
            up.add_metric(name, int(there is not None))
            if there is None:
                continue
            reached = [*desk.followed_to.values(), *(each.index for each in desk.broadcast.followers)]
            lag.add_metric(name, max(0, there - min([*reached, there])))
            end.add_metric(name, there)
        yield from (entries, size, syncs, readers, up, lag, end)

    def _copies(self) -> Iterator[Metric]:
        """What others copy from here, and what is copied here from others."""
        node = self._node
        streams = [(desk.stream.name, list(desk.copies)) for desk in node.desks]
        journals = [(source.name, list(source.copies)) for source in node.sources]
        yield from _copied("headrace_", "stream", streams, node.replicas)
        yield from _copied("headrace_journal_", "journal", journals, node.journal_replicas)

    def _journals(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("headrace_jobs_pending", "pending jobs", labels=["journal", "priority"])
        leased = GaugeMetricFamily("headrace_jobs_leased", "jobs being worked on", labels=["journal"])
        dead = GaugeMetricFamily("headrace_jobs_dead", "jobs that failed too often", labels=["journal"])
        age = GaugeMetricFamily(
            "headrace_oldest_job_seconds", "age of the oldest due job", labels=["journal"]
        )
        done = CounterMetricFamily("headrace_jobs_done", "jobs done", labels=["journal"])
        up = GaugeMetricFamily("headrace_journal_up", "0 if it takes nothing now", labels=["journal"])
        for journal in self._node.journals:
            stats, now = _unless_failed(Journal.stats, journal), journal.engine.clock.now_us()
            up.add_metric([journal.name], int(stats is not None))
            if stats is None:
                continue
            for priority, count in stats.by_priority.items():
                depth.add_metric([journal.name, str(priority)], count)
            leased.add_metric([journal.name], stats.leased)
            dead.add_metric([journal.name], stats.dead)
            oldest = now if stats.oldest_due_us is None else stats.oldest_due_us
            age.add_metric([journal.name], max(0, now - oldest) / 1e6)
            done.add_metric([journal.name], stats.done)
        yield from (up, depth, leased, dead, age, done)


def _unless_failed(figure: Callable[[S], T], of: S) -> T | None:
    """One stream or journal that fails must not take the figures of all others away."""
    try:
        return figure(of)
    except HeadraceError:
        return None


def _end(desk: StreamDesk) -> int:
    return desk.stream.next_index


def _lag(copy: Copying) -> int:
    return copy.lag


def _copied(
    prefix: str, noun: str, sources: list[tuple[str, list[Copying]]], replicas: Mapping[str, Following]
) -> Iterator[Metric]:
    entries = "entries" if noun == "stream" else "events"
    sent = GaugeMetricFamily(f"{prefix}copies", "copies that are being sent to", labels=[noun])
    behind = GaugeMetricFamily(f"{prefix}copies_lag", f"{entries} the last copy lacks", labels=[noun])
    for name, copies in sources:
        sent.add_metric([name], len(copies))
        behind.add_metric([name], max((_unless_failed(_lag, copy) or 0 for copy in copies), default=0))
    connected = GaugeMetricFamily(f"{prefix}replica_following", "1 if it is up", labels=[noun])
    lag = GaugeMetricFamily(f"{prefix}replica_lag", f"{entries} that the replica lacks", labels=[noun])
    for name, replica in replicas.items():
        connected.add_metric([name], int(replica.phase == "following"))
        if replica.lag is not None:
            lag.add_metric([name], replica.lag)
    yield from (sent, behind, connected, lag)
