"""Settings of a node: flags win over variables, variables over the file, the file over defaults."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.running import headrace
from typer.main import get_command

from headrace.cli.app import app
from headrace.cli.settings import FollowSetting, defaults, settle
from headrace.cli.settings_sources import from_environment, from_file, from_flags, settled, variable_of
from headrace.kernel.errors import BadSettings, NotFound

TEXT = st.text(string.ascii_letters + string.digits + "/._-", min_size=1, max_size=10)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "store": TEXT,
    "host": TEXT,
    "journal": TEXT,
    "tls_cert": TEXT,
    "tls_key": TEXT,
    "port": st.integers(0, 65535),
    "fj_port": st.integers(0, 65535),
    "insecure": st.booleans(),
    "log_level": st.sampled_from(["debug", "info", "warning", "error"]),
    "log_format": st.sampled_from(["auto", "text", "json"]),
    **{
        key: st.integers(1, 1 << 40) if isinstance(value, int) else st.floats(0.001, 1e6)
        for key, value in defaults().items()
        if key.startswith("limits.")
    },
}
SOURCE = st.fixed_dictionaries({}, optional=VALUES)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without settings, and no variables."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        monkeypatch.delenv(name)
    return tmp_path


def as_toml(values: dict[str, Any]) -> str:
    plain = [f"{key} = {json.dumps(value)}" for key, value in values.items() if "." not in key]
    limits = [f"{key[7:]} = {json.dumps(value)}" for key, value in values.items() if "." in key]
    return "\n".join([*plain, "[limits]", *limits])


def as_flags(values: dict[str, Any]) -> dict[str, Any]:
    flags = {key: value for key, value in values.items() if "." not in key}
    return flags | {"limit": [f"{key[7:]}={value}" for key, value in values.items() if "." in key]}


@given(SOURCE, SOURCE, SOURCE)
def test_the_first_that_says_something_wins(
    tmp_path_factory: pytest.TempPathFactory,
    flags: dict[str, Any],
    variables: dict[str, Any],
    written: dict[str, Any],
) -> None:
    file = tmp_path_factory.mktemp("settings") / "headrace.toml"
    file.write_text(as_toml(written))
    environment = {
        variable_of(key): str(value).lower() if value in (True, False) else str(value)
        for key, value in variables.items()
    }
    found = settle(from_flags(as_flags(flags)), from_environment(environment), from_file(file))
    assert [setting.key for setting in found.origins] == list(defaults())
    for setting in found.origins:
        key = setting.key
        if key in flags:
            wanted, origin = flags[key], f"--limit {key[7:]}" if "." in key else f"--{key.replace('_', '-')}"
        elif key in variables:
            wanted, origin = variables[key], variable_of(key)
        elif key in written:
            wanted, origin = written[key], str(file)
            if key in ("store", "tls_cert", "tls_key"):  # relative to the file
                wanted = str(file.parent / wanted)
        else:
            wanted, origin = defaults()[key], "default"
        if isinstance(wanted, Path) or key in ("store", "tls_cert", "tls_key"):
            wanted = None if wanted is None else str(Path(wanted))
        assert (setting.value, setting.origin) == (list(wanted) if wanted == () else wanted, origin)
    assert found.node.port == {each.key: each.value for each in found.origins}["port"]


def test_every_setting_can_be_given_in_every_way() -> None:
    options = {option for parameter in get_command(app).commands["serve"].params for option in parameter.opts}  # type: ignore[attr-defined]
    for key in defaults():
        if not key.startswith("limits.") and key != "follow":
            assert f"--{key.replace('_', '-')}" in options
    assert {"--limit", "--config"} <= options
    assert len({variable_of(key) for key in defaults()}) == len(defaults())


def test_the_file_is_looked_for_in_four_places(nowhere: Path) -> None:
    places = {"asked": nowhere / "a.toml", "variable": nowhere / "b.toml", "here": nowhere / "headrace.toml"}
    (nowhere / "data").mkdir()
    for port, path in enumerate([*places.values(), nowhere / "data" / "headrace.toml"], 1):
        path.write_text(f"port = {port}")
    variable = {"HEADRACE_CONFIG": str(places["variable"])}
    assert settled({}, variable, places["asked"]).node.port == 1
    assert settled({}, variable).node.port == 2
    assert settled({}, {}).node.port == 3
    places["here"].unlink()
    assert settled({}, {}).node.port == 4
    assert settled({"store": "other"}, {}).node.port == 7400
    assert settled({}, {"HEADRACE_STORE": "other"}).node.port == 7400
    for config, environment in ((nowhere / "none", {}), (None, {"HEADRACE_CONFIG": "none"})):
        with pytest.raises(NotFound):
            settled({}, environment, config)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 5", "'port'"),
        ("[limits]\nconections = 5", "'limits.connections'"),
        ("[limit]\nx = 5", "'limits."),
        ("tls-cert = 'x'", "'tls_cert'"),
        ("port = 70000", "port cannot be 70000"),
        ("port = 'x'", "port cannot be 'x'"),
        ("log_level = 'loud'", "log_level"),
        ("[limits]\nbody_bytes = '5 miles'", "limits.body_bytes"),
        ("[limits]\nbody_bytes = 0", "more than 0"),
        ("[limits]\nhead_s = -1", "more than 0"),
        ("[limits]\nhead_s = 'soon'", "limits.head_s"),
        ("limits = 5", "limits"),
        ("port = ", "not TOML"),
        ("follow = 5", "[[follow]]"),
        ("[[follow]]\nurl = 'x'", "follow"),
        ("[[follow]]\nurl = 'x'\nstraem = 'y'", "'follow.stream'"),
        ("[[follow]]\nurl = 'x'\nstream = 'y'\ntoken = 'hr_secret'\ntoken_file = 'f'", "not both"),
        ("[[follow]]\nurl = 5\nstream = 'y'\ntoken = 'hr_secret'", "follow"),
        ("[[follow]]\nurl = 'ftp://a'\nstream = 'y'", "http"),
        ("tls_cert = 'x'", "go together"),
        ("insecure = 'perhaps'", "insecure"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(nowhere: Path, text: str, says: str) -> None:
    (nowhere / "headrace.toml").write_text(text)
    with pytest.raises(BadSettings) as raised:
        settled({}, {})
    assert says in str(raised.value), raised.value
    assert "hr_secret" not in str(raised.value)
    assert raised.value.__cause__ is None or "hr_secret" not in str(raised.value.__cause__)


def test_flags_and_variables_that_are_wrong_are_named() -> None:
    for flags, variables, says in (
        ({"limit": ["connections"]}, {}, "connections=100"),
        ({"limit": ["conections=5"]}, {}, "'limits.connections'"),
        ({"limit": ["connections=many"]}, {}, "--limit connections"),
        ({}, {"HEADRACE_PROT": "5"}, "HEADRACE_PORT"),
        ({}, {"HEADRACE_LIMIT_CONNECTIONS": "5"}, "HEADRACE_LIMITS_CONNECTIONS"),
        ({}, {"HEADRACE_PORT": "x"}, "HEADRACE_PORT: port"),
    ):
        with pytest.raises(BadSettings) as raised:
            settled(flags, variables)
        assert says in str(raised.value), raised.value


def test_variables_of_others_are_left_alone() -> None:
    others = (
        "HEADRACE_SERVICE_HOST",
        "HEADRACE_SERVICE_PORT",
        "HEADRACE_PORT_7400_TCP",
        "HEADRACE_TRACEBACK",
    )
    assert settled({}, dict.fromkeys(others, "tcp://10.0.0.1:7400")).node.port == 7400


def test_sizes_and_times_are_written_as_people_write_them(nowhere: Path) -> None:
    (nowhere / "headrace.toml").write_text('[limits]\nbody_bytes = "1MiB"\nhead_s = "1m"\nbody_s = 5\n')
    limits = settled({"limit": ["drain_s=500ms", "bodies_bytes=1G"]}, {}).node.limits
    assert (limits.body_bytes, limits.head_s, limits.body_s) == (1 << 20, 60.0, 5.0)
    assert (limits.drain_s, limits.bodies_bytes) == (0.5, 1 << 30)


def test_streams_to_follow_are_a_list_whose_tokens_are_not_shown(nowhere: Path) -> None:
    (nowhere / "headrace.toml").write_text(
        '[[follow]]\nurl = "https://a:7400"\nstream = "orders"\ntoken = "hr_secret"\n'
        '[[follow]]\nurl = "http://127.0.0.1:7401"\nstream = "totals"\nname = "copy"\ntoken_file = "token"\n'
    )
    assert settled({}, {}).node.follow == (
        FollowSetting("https://a:7400", "orders", token="hr_secret"),
        FollowSetting("http://127.0.0.1:7401", "totals", "copy", token_file=Path("token")),
    )
    for words in ((), ("--origin",), ("--json",), ("--json", "--origin")):
        shown = headrace("config", "show", *words)
        assert shown.code == 0
        assert "https://a:7400" in shown.text
        assert "hr_secret" not in shown.text + shown.err
    assert "hr_secret" not in repr(settled({}, {}))


def test_a_token_file_and_certificates_are_looked_for_beside_the_settings(nowhere: Path) -> None:
    there = nowhere / "etc"
    there.mkdir()
    (there / "token").write_text("hr_secret\n")
    (there / "node.toml").write_text(
        '[[follow]]\nurl = "http://a"\nstream = "s"\ntoken_file = "token"\nca = "ca.pem"\n'
    )
    (follow,) = settled({}, {"HEADRACE_CONFIG": str(there / "node.toml")}).node.follow
    assert (follow.secret(), follow.ca) == ("hr_secret", there / "ca.pem")
    (there / "token").unlink()
    with pytest.raises(BadSettings, match="the token for http://a cannot be read"):
        follow.secret()


def test_config_show_prints_every_setting_and_where_it_came_from(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nowhere / "headrace.toml").write_text("port = 5\nfj_port = 6\n")
    monkeypatch.setenv("HEADRACE_FJ_PORT", "7")
    shown = headrace("config", "show", "--json", "--origin", "--host", "::1", "--limit", "rows=9").json
    assert list(shown) == list(defaults())
    assert shown["port"] == {"value": 5, "origin": "headrace.toml"}
    assert shown["fj_port"] == {"value": 7, "origin": "HEADRACE_FJ_PORT"}
    assert shown["host"] == {"value": "::1", "origin": "--host"}
    assert shown["limits.rows"] == {"value": 9, "origin": "--limit rows"}
    assert shown["journal"] == {"value": None, "origin": "default"}
    assert headrace("config", "show", "--json").json["fj_port"] == 7
    table = headrace("config", "show", "--origin").text
    assert all(key in table for key in defaults())
    assert "HEADRACE_FJ_PORT" in table
