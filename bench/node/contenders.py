"""The servers side by side: all run for the whole time, and those that are not asked sleep."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.measure import Aim, Figure, Run, best
from bench.node.contender import Contender
from bench.node.jetstream import JetStream
from bench.node.ours import Headrace
from bench.node.redis_streams import RedisStreams
from bench.servers import Serving, headrace_node, installed, nats_server, redis_server, version_of

OURS = "headrace"
SYNCED = "NATS JetStream"
UNSYNCED = "NATS JetStream, never synced"
_PROGRAMS = ("redis-server", "nats-server")


@dataclass(frozen=True, slots=True)
class Contenders:
    node: Headrace
    peers: tuple[Contender, ...]
    serving: Mapping[str, Serving]
    """By the name of the contender."""

    @property
    def all(self) -> tuple[Contender, ...]:
        return (self.node, *self.peers)

    @property
    def versions(self) -> str:
        return ", ".join(version_of(program) for program in _PROGRAMS if installed(program))


def contenders(run: Run, path: Path, stack: ExitStack) -> Contenders:
    """The servers that are there; all stop with the stack."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for a thousand followers, here and there
    enter = stack.enter_context
    serving = {OURS: enter(headrace_node(path / "headrace"))}
    node, peers = Headrace(serving[OURS].port), list[Contender]()
    for program in _PROGRAMS:
        if not installed(program):
            run.say(f"{program} is not installed: left out (apt-get install {program})")
    if installed("redis-server"):
        redis = enter(redis_server(path / "redis", "always"))
        peers.append(RedisStreams(redis.port))
        serving[peers[-1].name] = redis
    if installed("nats-server"):
        try:
            synced = enter(nats_server(path / "nats-synced", synced=True))
            peers.append(JetStream(synced.port, SYNCED))
            serving[peers[-1].name] = synced
        except (subprocess.CalledProcessError, OSError) as error:
            run.say(f"NATS cannot sync every write here, and is measured without: {error}")
        peers.append(JetStream(enter(nats_server(path / "nats", synced=False)).port, UNSYNCED))
    return Contenders(node, tuple(peers), serving)


def entry_count(run: Run, contender: Contender) -> int:
    """How many entries it publishes: so many that each takes a second or some."""
    if contender.name == OURS:
        return run.scaled(1_000_000, 200_000)
    return run.scaled(20_000, 5_000) if contender.name == SYNCED else run.scaled(100_000, 20_000)


def entry_rates(run: Run, there: Contenders, seconds: Callable[[Contender], float]) -> dict[str, float]:
    """Entries a second of each, from what it needs for one."""
    times = best(run.rounds, {each.name: partial(seconds, each) for each in there.all})
    return {name: 1 / spent for name, spent in times.items()}


def beside(what: str, found: Mapping[str, float], unit: str, aim: Aim | None) -> Iterator[Figure]:
    """A figure beside each peer. The aim counts beside the better one of those that are as safe."""
    if len(found) == 1:
        yield Figure(what, found[OURS], unit)
    safe = {name: value for name, value in found.items() if name not in (OURS, UNSYNCED)}
    less = unit in ("µs", "MB")
    better = (min if less else max)(safe, key=lambda name: safe[name], default=None)
    for name, value in found.items():
        if name != OURS:
            yield Figure(what, found[OURS], unit, name, value, aim if name == better else None)
