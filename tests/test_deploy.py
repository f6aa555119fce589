"""What is deployed says only what headrace understands, and asks for no rights that it does not need."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.running import headrace
from headrace.cli.settings import defaults
from headrace.cli.settings_sources import variable_of

DEPLOY = Path(__file__).parent.parent / "deploy"
UNIT = (DEPLOY / "headrace.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


@pytest.mark.parametrize("line", re.findall(r"^Exec\w+=/opt/headrace/bin/headrace (.+)$", UNIT, re.MULTILINE))
def test_the_units_commands_have_options_that_there_are(line: str) -> None:
    command, *words = shlex.split(line)
    shown = headrace(command, "--help").text
    for word in words:
        if word.startswith("--"):
            assert word in shown, word


def test_the_unit_is_hardened() -> None:
    for wanted in (
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "User=headrace",
        "CapabilityBoundingSet=\n",
    ):
        assert wanted in UNIT


def test_the_image_sets_variables_that_there_are_and_is_nobody_special() -> None:
    known = {variable_of(key) for key in defaults()}
    variables = re.findall(r"\b(HEADRACE_\w+)=", DOCKERFILE)
    assert len(variables) >= 3
    assert set(variables) <= known
    assert re.search(r"^USER headrace$", DOCKERFILE, re.MULTILINE)
    for path in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for name in path.split():
            assert (DEPLOY.parent / name).exists(), name
