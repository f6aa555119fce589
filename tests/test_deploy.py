"""What is deployed says only what headrace understands, and asks for no rights that it does not need."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import headrace as hr
from cli.running import COMMAND, headrace
from headrace.cli.settings import defaults
from headrace.cli.settings_sources import variable_of

DEPLOY = Path(__file__).parent.parent / "deploy"
UNIT = (DEPLOY / "headrace.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def unit_at(place: Path) -> str:
    """The unit, with everything it names at other places."""
    return (
        UNIT.replace("/opt/headrace/bin/headrace", str(place / "headrace"))
        .replace("/etc/headrace/", f"{place}/")
        .replace("/var/lib/headrace", str(place / "store"))
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A place with a `headrace` that runs what is tested here, and a file of settings."""
    (tmp_path / "headrace").write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    (tmp_path / "headrace").chmod(0o755)
    (tmp_path / "headrace.toml").write_text("port = 0\n")
    (tmp_path / "headrace.service").write_text(unit_at(tmp_path))
    return tmp_path


def test_systemd_finds_nothing_wrong_with_the_unit(installed: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", installed / "headrace.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_units_commands_run_and_a_node_starts_reloads_and_stops(installed: Path) -> None:
    lines = dict(re.findall(r"^(Exec\w+)=(.+)$", unit_at(installed), re.MULTILINE))
    assert set(lines) == {"ExecStartPre", "ExecStart", "ExecReload"}
    (installed / "store").mkdir(mode=0o700)  # as StateDirectory does
    checked = subprocess.run(shlex.split(lines["ExecStartPre"]), capture_output=True, check=False)
    assert checked.returncode == 0, checked
    with subprocess.Popen(shlex.split(lines["ExecStart"]), stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            url = node.stdout.readline().split()[-1]
            for _ in range(2):  # also after it was told to read its certificate again, of which it has none
                with hr.connect(url) as store:
                    assert store.streams() == []
                reload = lines["ExecReload"].replace("$MAINPID", str(node.pid))
                assert subprocess.run(shlex.split(reload), check=False).returncode == 0
            node.terminate()
            assert node.wait(30) == 0
        finally:
            node.kill()


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
