"""What is true of every command there is, and of those that will be added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.running import headrace
from typer.main import get_command

from headrace import __version__
from headrace.cli.app import app


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(_commands(get_command(app)))


def test_the_commands_of_the_noun_log_are_all_there() -> None:
    wanted = [
        "create",
        "append",
        "cat",
        "tail",
        "info",
        "verify",
        "repair",
        "trim",
        "import",
        "export",
        "bench",
    ]
    assert [words[1] for words in COMMANDS if words[0] == "log"] == wanted


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_says_what_it_does(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    assert command.callback.__doc__
    assert command.help
    assert command.help[0].isupper()
    shown = headrace(*words, "--help")
    assert shown.code == 0
    assert command.help.split()[0] in shown.text


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_of_its_parameters_is_explained(words: tuple[str, ...]) -> None:
    for parameter in COMMANDS[words].params:
        assert parameter.help, parameter.name


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_it_speaks_json(words: tuple[str, ...]) -> None:
    assert "--json" in {option for parameter in COMMANDS[words].params for option in parameter.opts}
    wrong = headrace(*words, "--json", "--no-such-option")
    assert wrong.code == 2
    assert wrong.out == b""
    assert wrong.error["code"] == "usage"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_wrong_usage_is_one_line_and_exit_code_2(words: tuple[str, ...]) -> None:
    wrong = headrace(*words, "--no-such-option")
    assert wrong.code == 2
    assert wrong.out == b""
    assert wrong.err.startswith("error (usage): ")
    assert wrong.err.count("\n") == 1
    assert f"headrace {' '.join(words)} --help" in wrong.err


def test_the_version_and_the_help_are_short() -> None:
    assert headrace("--version").text == f"headrace {__version__}\n"
    shown = headrace("--help")
    assert shown.code == 0
    assert len(shown.lines) < 25


def test_a_noun_alone_shows_its_commands() -> None:
    shown = headrace("log")
    assert shown.code == 2
    assert "verify" in shown.text + shown.err
