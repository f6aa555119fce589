"""What a node tells Prometheus: gathered from the node when it is asked, kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.server.node import Node


class NodeMetrics(Collector):
    def __init__(self, node: Node) -> None:
        self._node = node
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("headrace_requests", "requests over HTTP", self._node.requests)
        yield CounterMetricFamily("headrace_refused", "requests that were refused", self._node.refused)
        yield GaugeMetricFamily("headrace_requests_under_way", "requests under way", self._node.under_way)
        yield from self._streams()
        yield from self._journals()

    def _streams(self) -> Iterator[Metric]:
        entries = CounterMetricFamily("headrace_entries", "entries published", labels=["stream"])
        size = CounterMetricFamily("headrace_bytes", "bytes published", labels=["stream"])
        syncs = CounterMetricFamily("headrace_syncs", "syncs of the disk", labels=["stream"])
        seconds = CounterMetricFamily("headrace_sync_seconds", "time that syncs took", labels=["stream"])
        readers = GaugeMetricFamily("headrace_followers", "readers under way", labels=["stream"])
        end = GaugeMetricFamily("headrace_next_index", "where the stream ends", labels=["stream"])
        for desk in self._node.desks:
            name = [desk.stream.name]
            entries.add_metric(name, desk.published_entries)
            size.add_metric(name, desk.published_bytes)
            syncs.add_metric(name, desk.syncs)
            seconds.add_metric(name, desk.sync_s)
            readers.add_metric(name, desk.followers)
            end.add_metric(name, desk.stream.next_index)
        yield from (entries, size, syncs, seconds, readers, end)

    def _journals(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("headrace_jobs_pending", "pending jobs", labels=["journal", "priority"])
        leased = GaugeMetricFamily("headrace_jobs_leased", "jobs being worked on", labels=["journal"])
        dead = GaugeMetricFamily("headrace_jobs_dead", "jobs that failed too often", labels=["journal"])
        age = GaugeMetricFamily(
            "headrace_oldest_job_seconds", "age of the oldest due job", labels=["journal"]
        )
        done = CounterMetricFamily("headrace_jobs_done", "jobs done", labels=["journal"])
        for journal in self._node.journals:
            stats, now = journal.stats(), journal.engine.clock.now_us()
            for priority, count in stats.by_priority.items():
                depth.add_metric([journal.name, str(priority)], count)
            leased.add_metric([journal.name], stats.leased)
            dead.add_metric([journal.name], stats.dead)
            oldest = now if stats.oldest_due_us is None else stats.oldest_due_us
            age.add_metric([journal.name], max(0, now - oldest) / 1e6)
            done.add_metric([journal.name], stats.done)
        yield from (depth, leased, dead, age, done)
