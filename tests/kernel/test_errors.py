"""Errors: five groups by what the caller can do, and a stable code for each."""

from __future__ import annotations

import pytest

from headrace.kernel import errors
from headrace.kernel.errors import Broken, Closed, Damaged, HeadraceError, Refused, Retryable
from headrace.log.damage import DamagedEntries

GROUPS = (Retryable, Refused, Damaged, Closed, Broken)
ALL = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, HeadraceError)
] + [DamagedEntries]

CODES = {
    "error", "retryable", "refused", "damaged", "closed", "broken", "disk_full", "log_full", "not_found",
    "not_a_log", "bad_name", "bad_settings", "newer_format", "schema_mismatch", "key_order", "writer_taken",
    "read_only", "too_large", "trimmed", "truncated", "no_permission", "disk_failed", "fenced",
    "damaged_entries",
}  # fmt: skip
"""Codes travel over the wire: this set may grow, and nothing in it may change."""


def test_no_code_that_was_ever_sent_has_changed() -> None:
    assert {error.code for error in ALL} >= CODES


def test_codes_are_unique_and_plain() -> None:
    codes = [error.code for error in ALL]
    assert len(codes) == len(set(codes))
    assert all(code.replace("_", "").isalpha() and code.islower() for code in codes)


@pytest.mark.parametrize("error", [e for e in ALL if e is not HeadraceError])
def test_every_error_is_in_exactly_one_group(error: type[HeadraceError]) -> None:
    assert sum(issubclass(error, group) for group in GROUPS) == 1
