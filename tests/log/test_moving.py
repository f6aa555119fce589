"""Looking at a log that moves."""

from __future__ import annotations

import pytest

from headrace.kernel.errors import NotFound, Trimmed
from headrace.log.moving import look_again


def test_one_looks_again_when_something_went_away():
    went = iter([NotFound("a segment"), Trimmed("an entry")])

    def look() -> str:
        for error in went:
            raise error
        return "all of it"

    assert look_again(look) == "all of it"


def test_what_stays_away_is_missing():
    def look() -> str:
        raise NotFound("the log")

    with pytest.raises(NotFound, match="the log"):
        look_again(look)
