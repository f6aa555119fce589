"""Everything that tests/stream asks of a store's streams, asked of a node's: by both of its clients.

The tests are those of tests/stream themselves; what is listed here is what cannot be asked over a node. The
campaign (HEADRACE_CAMPAIGN=1) has all of them. The suite leaves out what is about types, whose code is the
same, and what takes long, and tries one variant of each.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import pytest

from stream import (
    test_a_tutorial,
    test_bad_entries,
    test_batches,
    test_becoming_a_union,
    test_crash,
    test_evolution,
    test_listen,
    test_nested_evolution,
    test_order_keys,
    test_publisher,
    test_store,
    test_types,
    test_unique,
)
from stream.test_publisher import failing as failing

pytestmark = pytest.mark.usefixtures("face")

CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))
MODULES = (
    test_a_tutorial, test_batches, test_becoming_a_union, test_crash, test_evolution, test_listen,
    test_order_keys, test_publisher, test_store, test_unique,
)  # fmt: skip
OF_TYPES = (test_bad_entries, test_nested_evolution, test_types)
LONG = {
    "test_indexes_are_right_while_the_background_writes",
    "test_a_lost_or_damaged_index_is_made_again_from_the_log",
    "test_the_entry_whose_publishing_failed_is_not_there_and_can_be_published_again",
    "test_segments_of_a_sherlock_stream_end_at_10_mb",
    "test_threads_that_create_at_the_same_moment_get_along",
    "test_damage_is_told_and_never_shows_a_wrong_entry",
}

ELSEWHERE = {
    "test_publishing_goes_on_after_a_torn_tail_was_cut": "the node has the log open: nothing tears its tail",
    "test_entries_that_were_cut_off_the_log_free_their_ids": "the same",
    "test_an_id_is_refused_if_and_only_if_it_is_among_the_last_entries": "it removes a file in use",
    "test_a_listener_is_told_of_damage_by_its_error_or_reads_on": "it verifies: see test_errors",
    "test_ensure_makes_a_stream_or_finds_it_as_expected": "it looks at the log below",
    "test_a_profile_is_kept_with_the_stream": "the same",
    "test_who_still_requires_what_became_optional_is_told": "over a node it is told before the first None",
    "test_queries_see_what_listeners_see": "DuckDB reads files",
    "test_kills_in_the_middle_of_publishing_lose_nothing_acknowledged": "other processes open the directory",
    "test_ids_are_exact_after_many_kills_in_the_middle_of_publishing": "the same",
    "test_a_stream_published_by_another_process_is_not_dropped": "the same",
    "test_there_is_one_publisher_among_processes": "the same",
    "test_a_publisher_in_another_process_can_be_taken_over": "the same",
    "test_head_reaches_a_listener_in_another_process": "the same",
    "test_several_processes_listen_while_one_publishes": "the same",
    "test_there_is_one_publisher_in_a_process": "it opens the directory a second time",
    "test_an_index_in_which_units_of_time_were_mixed_is_made_again": "the node keeps it open",
    "test_a_publisher_that_is_taken_over_in_the_middle_of_a_write_does_not_use_up_ids": "it halts the disk",
}
"""What cannot be asked of a node, and why."""


def asked(module: ModuleType) -> dict[str, Any]:
    """The tests of a module that are given a store, or make one for each example."""
    found = {}
    for name, test in vars(module).items():
        if not name.startswith("test_") or name in ELSEWHERE or not callable(test):
            continue
        words = getattr(test, "hypothesis", None)
        code = (words.inner_test if words else test).__code__
        given_one = "store" in code.co_varnames[: code.co_argcount]
        if (given_one and name not in LONG) or (
            CAMPAIGN and (given_one or "temporary_store" in code.co_names)
        ):
            found[name] = test
    return found


for _module in (*MODULES, *(OF_TYPES if CAMPAIGN else ())):
    globals().update(asked(_module))
