"""A name is one visible file name, and can never leave its directory."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import BadName
from headrace.kernel.limits import NAME_BYTES_MAX
from headrace.kernel.names import checked_name


@given(st.text(max_size=250))
def test_whatever_passes_is_one_visible_file_name(text: str) -> None:
    try:
        name = checked_name(text)
    except BadName:
        return
    assert name == text
    assert PurePosixPath("/log") / name == PurePosixPath(f"/log/{text}")
    assert (PurePosixPath("/log") / name).parent == PurePosixPath("/log")
    assert not name.startswith(".")
    assert len(name.encode()) <= NAME_BYTES_MAX


@given(st.from_regex(r"[A-Za-z0-9_-]([A-Za-z0-9_-]|\.[A-Za-z0-9_-]){0,60}", fullmatch=True))
def test_ordinary_names_pass(name: str) -> None:
    assert checked_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", ".hidden", "a/b", "a\\b", "a b", "a\n", "ü", "a\0", "x" * 201, None, 7, b"a"],
)
def test_other_names_are_refused_and_named(name: object) -> None:
    with pytest.raises(BadName) as refused:
        checked_name(name, "stream name")  # type: ignore[arg-type]
    assert refused.value.code == "bad_name"
    assert "stream name" in str(refused.value)


def test_the_longest_name_passes() -> None:
    assert checked_name("x" * NAME_BYTES_MAX)
