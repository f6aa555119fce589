"""The reach of a log: what its writer tells, and that bad news stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.log.disk import Disk
from headrace.log.mark import Mark, read_extent
from headrace.log.reach import Reach
from headrace.log.state import LogState


class _SlowMark(Mark):
    """Something happens in another thread right before the mark is written."""

    meanwhile: Callable[[], None] | None = None

    def write_fields(self, *fields: int) -> None:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        super().write_fields(*fields)


def _mark(path: Path) -> _SlowMark:
    return _SlowMark(Disk().open(path / "mark", write=True, create=True))


def test_a_sync_that_fails_while_an_append_tells_stays_in_the_mark(tmp_path: Path) -> None:
    mark = _mark(tmp_path)
    reach = Reach(mark, LogState(next_index=7))
    mark.meanwhile = lambda: reach.stop(in_doubt=True)
    reach.tell()
    extent = read_extent(Disk(), tmp_path)
    assert extent is not None
    assert extent.suspect
    reach.tell()
    assert read_extent(Disk(), tmp_path) == extent
    reach.close()


def test_one_that_was_taken_over_tells_no_more(tmp_path: Path) -> None:
    state = LogState(next_index=7)
    reach = Reach(_mark(tmp_path), state)
    reach.tell()
    before = read_extent(Disk(), tmp_path)
    reach.stop(in_doubt=False)
    state.next_index = 8
    reach.tell()
    assert read_extent(Disk(), tmp_path) == before
    reach.close()


def test_what_is_durable_does_not_go_back(tmp_path: Path) -> None:
    reach = Reach(_mark(tmp_path), LogState(next_index=7, head_key=70))
    reach.synced(5, 50)
    extent = reach.extent()
    assert (extent.durable_index, extent.durable_head) == (7, 70)
    reach.close()
