"""Damage: told exactly, read over only when asked to, and never called a success."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import damaged_log, headrace, log


def test_cat_stops_at_damage_and_says_how_to_go_on(tmp_path: Path) -> None:
    stopped = headrace("log", "cat", damaged_log(tmp_path / "a"))
    assert stopped.code == 1
    assert stopped.lines == ["record 0a", "record 0b"]
    assert stopped.err.startswith("error (damaged_entries): ")
    assert "entries 2 to 3 are lost" in stopped.err
    assert "--skip-damaged" in stopped.err
    assert stopped.err.count("\n") == 1


def test_cat_reads_over_damage_with_one_line_each_and_exit_code_3(tmp_path: Path) -> None:
    path = damaged_log(tmp_path / "a")
    read = headrace("log", "cat", path, "--skip-damaged")
    assert read.code == 3
    assert read.lines == [f"record {n}{part}" for n in (0, 2, 3) for part in "ab"]
    assert read.err.startswith("damage: ")
    assert read.err.count("\n") == 1
    machine = headrace("log", "cat", path, "--skip-damaged", "--json")
    damage = json.loads(machine.err)["damage"]
    assert (damage["first_lost"], damage["stop_lost"]) == (2, 4)


def test_damage_that_is_not_read_does_not_matter(tmp_path: Path) -> None:
    path = damaged_log(tmp_path / "a")
    assert log("cat", path, "--count", "2").lines == ["record 0a", "record 0b"]
    assert log("cat", path, "--from", "4", "--until", "5").lines == ["record 2a"]
    assert log("tail", path, "-n", "2").lines == ["record 3a", "record 3b"]


def test_tail_tells_of_damage_and_goes_on(tmp_path: Path) -> None:
    shown = headrace("log", "tail", damaged_log(tmp_path / "a"), "-n", "5")
    assert shown.code == 3
    assert shown.lines == ["record 2a", "record 2b", "record 3a", "record 3b"]
    assert shown.err.startswith("damage: ")


def test_verify_lists_exactly_what_is_lost(tmp_path: Path) -> None:
    path = damaged_log(tmp_path / "a")
    found = headrace("log", "verify", path)
    assert found.code == 3
    assert found.err == ""
    assert found.lines[-1] == "lost: entries 2 to 3"
    machine = headrace("log", "verify", path, "--json")
    assert machine.code == 3
    assert machine.json["ok"] is False
    assert machine.json["lost"] == [[2, 4]]
    assert machine.json["entries"] == 6


def test_repair_makes_the_log_whole_and_keeps_what_it_replaced(tmp_path: Path) -> None:
    path = damaged_log(tmp_path / "a")
    report = log("repair", path, "--json").json
    assert [damage["first_lost"] for damage in report["found"]] == [2]
    assert len(report["rewritten"]) == 1
    assert all((path / kept).exists() for kept in report["kept"])
    assert report["after"]["ok"] is True
    assert log("verify", path).text.startswith(f"{path}: whole: 6 entries")
    assert log("cat", path, "--index").lines[2] == "4\trecord 2a"
    assert log("repair", path).text == f"{path}: whole, nothing to repair: 6 entries\n"


def test_repair_restores_a_lost_meta(tmp_path: Path) -> None:
    log("append", tmp_path / "a", "--create", given=b"x\n")
    (tmp_path / "a" / "meta.json").unlink()
    assert "headrace log repair" in headrace("log", "cat", tmp_path / "a").err
    assert "restored: meta.json" in log("repair", tmp_path / "a").text
    assert log("cat", tmp_path / "a").out == b"x\n"
