"""A journal and a model of it do the same; every answer and every list must be the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.crash.workload import examples

from headrace.journal import batch_operations, ledger, residents, sweep
from headrace.log import tail

from .job_rules import JobRules
from .machine import Machine
from .value_rules import ValueRules

STEPS = 50


class JobsAndValues(JobRules, ValueRules):
    """Both in one journal, so that they share a log, its sweep, and the memory."""


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small tail that turns often, a sweep with nearly no slack, nothing too small to be evicted, and
    series of few jobs or one.

    There is nothing in the background: rules say when, so that a failure can be repeated.
    """
    monkeypatch.setattr(ledger.Ledger, "start", lambda self: None)
    monkeypatch.setattr(tail, "TAIL_BYTES", 1 << 13)
    monkeypatch.setattr(ledger, "TAIL_BYTES", 1 << 13)
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 3)
    monkeypatch.setattr(sweep, "_SLACK_BYTES", 0)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 5)
    monkeypatch.setattr(residents, "_WORTH_BYTES", 3)
    monkeypatch.setattr(batch_operations, "_FEW", 1)
    monkeypatch.setattr(batch_operations, "SERIES_EVENTS", 3)


@pytest.mark.parametrize("rules", [JobRules, ValueRules, JobsAndValues])
@pytest.mark.usefixtures("_small", "quiet_log")
def test_a_journal_answers_what_its_model_answers(rules: type[Machine], place: Path) -> None:
    rules.root = place
    run_state_machine_as_test(rules, settings=settings(examples(7), stateful_step_count=STEPS))
