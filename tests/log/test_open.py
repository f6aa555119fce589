"""Opening: what is not right is refused with a code, and nothing has changed."""

from __future__ import annotations

import json
import logging
import math
import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.kernel.errors import (
    BadName,
    BadSettings,
    Damaged,
    HeadraceError,
    NewerFormat,
    NoPermission,
    NotALog,
    NotFound,
    ReadOnly,
    SchemaMismatch,
)
from headrace.log import Containers, Finalize, Log, Retention, Settings

from .samples import ORDERS, RING, all_bytes, orders, segment_files, values
from .test_meta import newer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed log with five entries, ordered by their key."""
    with Log.open(tmp_path / "log", ORDERS, order_by="at") as log:
        log.append(orders(0, 5))
    return tmp_path / "log"


def refused(
    error: type[HeadraceError], path: Path, *args: object, match: str | None = None, **kwargs: object
) -> str:
    """Opening raises exactly this error, says where, and leaves everything as it was."""
    before = all_bytes(path.parent)
    with pytest.raises(error, match=match) as raised:
        Log.open(path, *args, **kwargs)  # type: ignore[arg-type]
    assert type(raised.value) is error
    assert all_bytes(path.parent) == before
    return str(raised.value)


# --- paths


@pytest.mark.parametrize("schema", [None, ORDERS])
def test_a_file_is_not_a_log(tmp_path: Path, schema: pa.Schema | None) -> None:
    (tmp_path / "file").write_text("precious")
    refused(NotALog, tmp_path / "file", schema, match="file")


def test_nothing_is_made_inside_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    refused(NotALog, tmp_path / "file" / "log", ORDERS)


@pytest.mark.parametrize("schema", [None, ORDERS])
def test_a_directory_with_other_files_is_not_made_a_log(tmp_path: Path, schema: pa.Schema | None) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    refused(NotALog, tmp_path / "photos", schema, match="photos")


def test_a_log_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    refused(NotFound, tmp_path / "nope")
    refused(NotFound, tmp_path / "nope", read_only=True)
    refused(NotFound, tmp_path / "nope", ORDERS, read_only=True)


def test_an_empty_directory_becomes_a_log_if_there_is_a_schema(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    refused(NotALog, tmp_path / "log")
    Log.open(tmp_path / "log", ORDERS).close()


def test_directories_on_the_way_are_made(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a" / "b" / "log", ORDERS) as log:
        log.append(orders(0, 1))
    assert (tmp_path / "a" / "b" / "log" / "meta.json").exists()


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
@pytest.mark.parametrize("schema", [None, ORDERS])
def test_a_path_that_cannot_be_is_refused_in_our_own_words(
    tmp_path: Path, name: str, schema: pa.Schema | None
) -> None:
    with pytest.raises((BadName, NotFound, NotALog)):
        Log.open(tmp_path / name, schema)
    assert list(tmp_path.iterdir()) == []


def test_what_a_crashed_creation_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "lock").touch()
    (tmp_path / "log" / "meta.json.tmp").write_bytes(b'{"for')
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 1))
        assert values(log) == [0]


# --- permissions: as root everything is allowed, so a child gives its rights up


def as_nobody(path: Path, how: str) -> str:
    """What opening the log says to a process that is nobody's: "opened", or an error's code."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            Log.open(path, ORDERS if how == "create" else None, read_only=how == "read")
            answer = "opened"
        except HeadraceError as error:
            answer = error.code
        except BaseException as error:
            answer = repr(error)
        os.write(write_end, answer.encode())
        os._exit(0)
    os.close(write_end)
    with open(read_end) as answers:
        said = answers.read()
    os.waitpid(child, 0)
    return said


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == os.geteuid() and len(parent.parts) > 2:
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    return tmp_path


@needs_root
@pytest.mark.parametrize("how", ["write", "read", "create"])
def test_a_log_one_may_not_enter_is_no_permission(open_to_all: Path, how: str) -> None:
    Log.open(open_to_all / "log", ORDERS).close()
    (open_to_all / "log").chmod(0o700)
    before = all_bytes(open_to_all)
    assert as_nobody(open_to_all / "log", how) == NoPermission.code
    assert all_bytes(open_to_all) == before


@needs_root
def test_a_log_one_may_only_read_can_be_read_and_not_written(open_to_all: Path) -> None:
    with Log.open(open_to_all / "log", ORDERS) as log:
        log.append(orders(0, 3))
    (open_to_all / "log").chmod(0o755)
    for file in (open_to_all / "log").iterdir():
        file.chmod(0o644)
    before = all_bytes(open_to_all)
    assert as_nobody(open_to_all / "log", "read") == "opened"
    assert as_nobody(open_to_all / "log", "write") == NoPermission.code
    assert all_bytes(open_to_all) == before


@needs_root
def test_a_log_cannot_be_made_where_one_may_not_write(open_to_all: Path) -> None:
    (open_to_all / "closed").mkdir(mode=0o755)
    assert as_nobody(open_to_all / "closed" / "log", "create") == NoPermission.code
    assert list((open_to_all / "closed").iterdir()) == []


# --- schemas

AT, WHAT = pa.field("at", pa.int64()), pa.field("what", pa.string())


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (pa.schema([AT]), "what"),
        (pa.schema([AT, WHAT, pa.field("more", pa.int8())]), "more"),
        (pa.schema([WHAT, AT]), "at"),
        (pa.schema([pa.field("time", pa.int64()), WHAT]), "time"),
        (pa.schema([pa.field("at", pa.int32()), WHAT]), "int32"),
        (pa.schema([AT, pa.field("what", pa.large_string())]), "large_string"),
        (pa.schema([AT, pa.field("what", pa.string(), nullable=False)]), "null"),
        (pa.schema([pa.field("at", pa.timestamp("us")), WHAT]), "timestamp"),
    ],
)
def test_each_kind_of_difference_in_a_schema_is_named(path: Path, given: pa.Schema, named: str) -> None:
    assert named in refused(SchemaMismatch, path, given)
    assert named in refused(SchemaMismatch, path, given, read_only=True)


def test_metadata_of_a_schema_makes_no_difference(path: Path) -> None:
    Log.open(path, ORDERS.with_metadata({"owner": "us"})).close()


def test_another_order_is_refused(path: Path) -> None:
    refused(SchemaMismatch, path, order_by="what", match="'at'")
    Log.open(path, order_by="at").close()


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([("colour", pa.dictionary(pa.int8(), pa.string()))]),
        pa.schema([("either", pa.sparse_union([pa.field("a", pa.int8()), pa.field("b", pa.string())]))]),
        {"at": "int64"},
    ],
    ids=["empty", "dictionary", "union", "dict"],
)
def test_a_schema_that_cannot_be_stored_is_refused(tmp_path: Path, schema: object) -> None:
    with pytest.raises((SchemaMismatch, BadSettings)):
        Log.open(tmp_path / "log", schema)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order_by", ["nope", "what"])
def test_a_field_that_cannot_be_the_order_key_is_refused(tmp_path: Path, order_by: str) -> None:
    refused(BadSettings, tmp_path / "log", ORDERS, order_by=order_by, match=order_by)


# --- meta and foreign files


def test_a_newer_format_is_refused_and_nothing_touched(path: Path) -> None:
    from headrace.log.disk import Disk
    from headrace.log.meta import load_meta

    (path / "meta.json").write_bytes(newer(load_meta(Disk(), path)))
    refused(NewerFormat, path)
    refused(NewerFormat, path, ORDERS, read_only=True)


def test_a_damaged_meta_is_refused_with_advice(path: Path) -> None:
    meta = json.loads((path / "meta.json").read_text())
    meta["settings"]["retention"]["age_s"] = 1.0
    (path / "meta.json").write_text(json.dumps(meta))
    assert "repair" in refused(Damaged, path)


def test_segments_without_a_meta_are_damage_not_an_empty_place(path: Path) -> None:
    (path / "meta.json").unlink()
    assert "repair" in refused(Damaged, path, ORDERS)


def test_foreign_files_are_left_alone_and_listed(path: Path) -> None:
    (path / "notes.txt").write_text("mine")
    (path / "photos").mkdir()
    (path / "photos" / "cat.jpg").write_bytes(b"meow")
    with Log.open(path) as log:
        log.append(orders(5, 6))
        log.roll()
        log.trim(6)
        assert log.info().foreign == ["notes.txt", "photos"]
        assert log.verify().ok
    assert (path / "notes.txt").read_text() == "mine"
    assert (path / "photos" / "cat.jpg").read_bytes() == b"meow"


# --- settings


@pytest.mark.parametrize(
    "wrong",
    [
        Settings(write_buffers=0),
        Settings(finalize=Finalize(bytes=-1)),
        Settings(retention=Retention(entries=-1)),
        Settings(durability="never"),  # type: ignore[arg-type]
    ],
)
def test_wrong_settings_are_refused_for_new_and_old_logs(path: Path, wrong: Settings) -> None:
    before = all_bytes(path)
    for where in (path, path.parent / "new"):
        with pytest.raises(BadSettings):
            Log.open(where, ORDERS, wrong)
    after = all_bytes(path)
    assert {name: content for name, content in after.items() if name != "lock"} == {
        name: content for name, content in before.items() if name != "lock"
    }
    assert not (path.parent / "new").exists()
    with Log.open(path) as log:
        assert values(log) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("never", [Finalize(age_s=math.inf), Finalize(bytes=1 << 62, entries=1 << 62)])
def test_settings_that_are_accepted_can_be_read_again(tmp_path: Path, never: Finalize) -> None:
    try:
        with Log.open(tmp_path / "log", ORDERS, Settings(finalize=never)) as log:
            log.append(orders(0, 2))
    except BadSettings:
        assert not (tmp_path / "log" / "meta.json").exists()
        return
    with Log.open(tmp_path / "log") as log:
        assert log.settings.finalize == never
        assert values(log) == [0, 1]


def test_new_settings_replace_the_stored_ones(path: Path) -> None:
    wanted = Settings(compression="lz4", finalize=Finalize(entries=3))
    Log.open(path, settings=wanted).close()
    with Log.open(path) as log:
        assert log.settings == wanted
        log.append(orders(5, 9))
        assert values(log) == list(range(9))


def test_the_size_of_containers_is_for_life(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Log.open(tmp_path / "log", ORDERS, RING).close()
    files = segment_files(tmp_path / "log")
    for other in (Settings(), Settings(containers=Containers(bytes=2 << 20))):
        caplog.clear()
        with caplog.at_level(logging.WARNING), Log.open(tmp_path / "log", settings=other) as log:
            assert log.settings.containers == RING.containers
        assert "container size" in caplog.text
    assert segment_files(tmp_path / "log") == files


def test_a_log_without_containers_gets_none_later(path: Path) -> None:
    with Log.open(path, settings=RING) as log:
        assert log.settings.containers is None


def test_the_number_of_initial_containers_is_ignored_for_an_existing_log(tmp_path: Path) -> None:
    Log.open(tmp_path / "log", ORDERS, RING).close()
    Log.open(tmp_path / "log", settings=Settings(containers=Containers(512 * 1024, initial=9))).close()
    assert len(segment_files(tmp_path / "log")) == 2


# --- read only


def test_a_read_only_log_changes_nothing_and_says_so(path: Path) -> None:
    before = all_bytes(path)
    with Log.open(path, read_only=True) as log:
        assert values(log) == [0, 1, 2, 3, 4]
        assert log.seek_key(3) == 3
        assert log.verify().ok
        for attempt in (
            lambda: log.append(orders(5, 6)),
            lambda: log.append_group([orders(5, 6)], writer="w", sequence=1),
            lambda: log.head(9),
            lambda: log.trim(1),
            lambda: log.truncate(1),
            log.roll,
            log.sync,
            log.retain,
        ):
            with pytest.raises(ReadOnly):
                attempt()
    assert all_bytes(path) == before


def test_a_log_can_be_read_while_another_holds_it(path: Path) -> None:
    with Log.open(path) as writer, Log.open(path, read_only=True) as reader:
        writer.append(orders(5, 7))
        assert values(reader) == list(range(7))
        assert reader.next_index == 7
