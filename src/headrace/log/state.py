"""The state of a log: a fold of its frames.

What the writer must know before it appends: the next index, HEAD (the largest order key promised so
far), the first index kept, the epoch, and the last commit of every writer that commits groups. Replaying
frames is the only way to get there; each segment's start frame carries the state over, so that replaying
the active segment is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.kernel.limits import CARRIED_COMMITS_BYTES_MAX, WRITERS_MAX
from headrace.log.frame import BATCH, Header, Kind


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic group: who committed it, its sequence number there, and where its entries are.

    `repeated` tells that the group was in the log already and nothing was appended.
    """

    writer: str
    sequence: int
    base_index: int
    next_index: int
    note: str = ""
    repeated: bool = False


@dataclass(slots=True)
class LogState:
    next_index: int = 0
    head_key: int = 0
    last_key: int | None = None
    """Order key of the last entry; HEAD may be further on."""
    base_index: int = 0
    epoch: int = 1
    commits: dict[str, Commit] = field(default_factory=dict)

    def apply(self, header: Header, body: bytes = b"") -> None:
        """Move on by one frame; `body` matters for commits only."""
        if header.epoch > self.epoch:
            self.epoch = header.epoch
        self.next_index = header.next_index
        if header.kind == BATCH:
            self.last_key = key = header.last_key
            if key > self.head_key:
                self.head_key = key
            return
        match header.kind:
            case Kind.HEAD:
                self.head_key = max(self.head_key, header.last_key)
            case Kind.BASE:
                self.base_index = max(self.base_index, header.first_key)
            case Kind.COMMIT:
                self.remember(decode_commit(body))

    def remember(self, commit: Commit) -> None:
        if not commit.writer:
            return  # a large append that took several batches: nobody will repeat it
        self.commits.pop(commit.writer, None)
        self.commits[commit.writer] = commit  # the dict's order is the order of the last commits
        while len(self.commits) > WRITERS_MAX:
            del self.commits[next(iter(self.commits))]

    def carried(self) -> dict[str, Any]:
        """What a start frame says of the state before its segment."""
        commits: list[Any] = []
        room = CARRIED_COMMITS_BYTES_MAX
        for commit in reversed(self.commits.values()):
            room -= len(encode_commit(commit))
            if room >= 0:
                commits.insert(0, msgspec.to_builtins(commit))
        return {
            "head_key": self.head_key,
            "last_key": self.last_key,
            "base_index": self.base_index,
            "commits": commits,
        }

    @classmethod
    def from_carried(cls, carried: Mapping[str, Any], next_index: int, epoch: int) -> LogState:
        commits = [msgspec.convert(commit, Commit) for commit in carried["commits"]]
        return cls(
            next_index=next_index,
            head_key=carried["head_key"],
            last_key=carried["last_key"],
            base_index=carried["base_index"],
            epoch=epoch,
            commits={commit.writer: commit for commit in commits},
        )


def encode_commit(commit: Commit) -> bytes:
    return msgspec.json.encode(commit)


def decode_commit(body: bytes) -> Commit:
    return msgspec.json.decode(body.rstrip(b"\0"), type=Commit)
