"""A job as whoever works on it sees it, and what `next` answers when there is none.

    with jobs.next("example.com", lease="2h") as job:
        if job:
            work(job.resource)        # done when the block ends; given back if it raises

Times are microseconds since 1970, as in the log and on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from headrace.kernel.durations import Duration

Data = bytes | str | int | float | bool | None


class Desk(Protocol):
    """Who gave the job out, and takes it back."""

    def done(self, job: Job) -> Any: ...

    def fail(self, job: Job, retry_in: Duration | None = None) -> Any: ...

    def extend(self, job: Job, lease: Duration) -> Any: ...


@dataclass(slots=True)
class Job:
    id: int
    """Never used twice in one journal."""
    resource: str
    domain: str
    priority: int
    due_us: int
    value: Data
    attempts: int
    """How often it was taken, this time included."""
    lease_until_us: int
    """Until then nobody else gets it. Together with the resource it names this lease and no other. 0 if the
    job was taken for good, and there is nothing to give back."""
    _desk: Desk = field(repr=False, compare=False)

    def done(self) -> None:
        """The work is done; the job is gone. LeaseLost if it was not ours any more."""
        self._desk.done(self)

    def fail(self, retry_in: Duration | None = None) -> None:
        """The work failed; the job is due again after `retry_in`, or after a time that grows by attempts."""
        self._desk.fail(self, retry_in)

    def extend(self, lease: Duration) -> None:
        """Keep the job for `lease` from now on."""
        self._desk.extend(self, lease)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if not self.lease_until_us:
            return
        if kind is None:
            self.done()
        else:
            self.fail()


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is no job to work on now. False in a condition, like None."""

    next_at_us: int | None = None
    """When the next one is due or a lease ends; None if there is none at all."""

    def __bool__(self) -> Literal[False]:
        return False

    def __enter__(self) -> Nothing:
        return self

    def __exit__(self, *exception: object) -> None:
        pass
