"""Channels: producer and consumer in different places, and nothing lost between them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import headrace
from headrace.kernel.errors import BadName, Closed, NotALog, WriterTaken
from headrace.log import Finalize, Log, Retention, Settings

from .samples import segment_files

SMALL = Settings(finalize=Finalize(entries=3), retention=Retention(consumed=True))


def take(box: headrace.Channel, most: int) -> list[bytes]:
    got = []
    while len(got) < most and (data := box.get(timeout=0)) is not None:
        got.append(data)
    return got


CONSUMER = """
import sys, headrace
path, crash_after = sys.argv[1], int(sys.argv[2])
box = headrace.channel(path, "uploader")
print("ready", flush=True)
for number, data in enumerate(box, 1):
    print(data.decode(), flush=True)
    if number == crash_after:
        sys.stdin.readline()
    box.ack()
"""


def consumer(path: Path, crash_after: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", CONSUMER, str(path), str(crash_after)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_consumer_killed_before_its_acknowledgement_gets_that_record_again(tmp_path: Path) -> None:
    with headrace.channel(tmp_path / "box", "producer-side") as box:
        box.put(b"0")
        with consumer(tmp_path / "box", crash_after=3) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "ready\n"
            assert first.stdout.readline() == "0\n"
            for number in (1, 2):  # produced here while it consumes there
                box.put(b"%d" % number)
                assert first.stdout.readline() == f"{number}\n"
            first.kill()
        box.put(b"3")
        with consumer(tmp_path / "box", crash_after=99) as second:
            assert second.stdout is not None
            lines = [second.stdout.readline().strip() for _ in range(3)]
            second.kill()
        assert lines == ["ready", "2", "3"]  # 0 and 1 were acknowledged


def test_acknowledged_records_do_not_come_again(tmp_path: Path) -> None:
    with headrace.channel(tmp_path / "box", "us") as box:
        box.put_many([b"%d" % number for number in range(10)])
        assert take(box, 4) == [b"0", b"1", b"2", b"3"]
        box.ack()
        assert take(box, 2) == [b"4", b"5"]
    for _ in range(2):
        with headrace.channel(tmp_path / "box", "us") as box:
            assert take(box, 99) == [b"%d" % number for number in range(4, 10)]
    with headrace.channel(tmp_path / "box", "us") as box:
        take(box, 99)
        box.ack()
        assert box.get(timeout=0) is None
        assert box.put(b"10") == 10
        assert box.get(timeout=0) == b"10"


def test_acknowledging_nothing_changes_nothing(tmp_path: Path) -> None:
    with headrace.channel(tmp_path / "box", "us") as box:
        box.put(b"one")
        box.ack()
    with headrace.channel(tmp_path / "box", "us") as box:
        assert box.get(timeout=0) == b"one"


def test_segments_that_all_named_consumers_have_acknowledged_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "box"
    with headrace.channel(path, "fast", settings=SMALL) as fast, headrace.channel(path, "slow") as slow:
        take(slow, 0)
        assert slow.get(timeout=0) is None  # now it has a name in the positions
        for number in range(12):
            fast.put(b"%d" % number)
        assert take(fast, 99) == [b"%d" % number for number in range(12)]
        fast.ack()
        for number in range(12, 16):
            fast.put(b"%d" % number)
        assert len(segment_files(path)) >= 5, "the slow one still needs them all"

        assert take(slow, 9) == [b"%d" % number for number in range(9)]
        slow.ack()
        for number in range(16, 20):
            fast.put(b"%d" % number)
        with Log.open(path, read_only=True) as log:
            assert log.first_index == 9
        assert take(slow, 99) == [b"%d" % number for number in range(9, 20)]


def test_by_default_a_channel_removes_what_is_consumed(tmp_path: Path) -> None:
    with headrace.channel(tmp_path / "box", "us") as box:
        box.put(b"x")
        with Log.open(tmp_path / "box", read_only=True) as log:
            assert log.settings.retention == Retention(consumed=True)


def test_without_a_consumer_nothing_is_removed(tmp_path: Path) -> None:
    with headrace.channel(tmp_path / "box", "us", settings=SMALL) as box:
        for number in range(10):
            box.put(b"%d" % number)
        assert take(box, 99) == [b"%d" % number for number in range(10)]


def test_a_second_consumer_of_the_same_name_is_refused(tmp_path: Path) -> None:
    with (
        headrace.channel(tmp_path / "box", "us") as one,
        headrace.channel(tmp_path / "box", "us") as two,
        headrace.channel(tmp_path / "box", "them") as other,
    ):
        one.put(b"x")
        assert one.get(timeout=0) == b"x"
        with pytest.raises(WriterTaken, match="'us'"):
            two.get(timeout=0)
        assert other.get(timeout=0) == b"x"
        one.close()
        assert two.get(timeout=0) == b"x"


@pytest.mark.parametrize("name", ["..", "a/b", "", ".x", "ü"])
def test_a_consumers_name_cannot_leave_its_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadName):
        headrace.channel(tmp_path / "box", name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_queue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(NotALog):
        headrace.channel(tmp_path / "photos", "us")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_closing_a_channel_ends_the_thread_that_consumes_it(tmp_path: Path) -> None:
    box = headrace.channel(tmp_path / "box", "us")
    box.put(b"one")
    got: list[object] = []
    first = threading.Event()

    def consume() -> None:
        try:
            for data in box:
                got.append(data)
                first.set()
        except Exception as error:
            got.append(error)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    assert first.wait(60)
    box.close()
    thread.join(60)
    assert not thread.is_alive()
    assert got == [b"one"]
    for attempt in (lambda: box.put(b"x"), lambda: box.get(timeout=0), box.ack):
        with pytest.raises(Closed):
            attempt()


def test_put_is_durable_when_it_returns(tmp_path: Path) -> None:
    with headrace.channel(tmp_path / "box", "us") as box:
        for number in range(3):
            box.put(b"x")
            with Log.open(tmp_path / "box", read_only=True) as log:
                assert log.durable_index == number + 1
