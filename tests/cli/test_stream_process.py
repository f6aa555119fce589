"""`headrace stream` as a process: pipes, signals, exit codes."""

from __future__ import annotations

import json
import signal
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
from tests.cli.running import COMMAND, run_process
from tests.cli.streaming import Streams, lines_of

import headrace as hr


def test_parquet_from_a_pipe_goes_through_a_temporary_file(streams: Streams) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1, 2, 3]}), sink)
    words = ("stream", "publish", "a", "--create", "--format", "parquet", "--store", streams.path)
    assert run_process(*words, given=sink.getvalue().to_pybytes()).code == 0
    assert streams.rows("a") == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_pipe_that_does_not_end_is_published_as_it_goes_and_followed(streams: Streams) -> None:
    streams("create", "a", "--field", "n:int")
    store = ["--store", str(streams.path)]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen([*COMMAND, "stream", "publish", "a", *store], stdin=pipe, stdout=pipe) as source,
        subprocess.Popen([*COMMAND, "stream", "tail", "a", "-f", *store], stdout=pipe, stderr=pipe) as sink,
    ):
        assert source.stdin is not None
        assert sink.stdout is not None
        for n in range(3):
            source.stdin.write(lines_of([{"n": n}]))
            source.stdin.flush()
            assert json.loads(sink.stdout.readline()) == {"n": n}
        source.communicate(timeout=60)
        sink.send_signal(signal.SIGINT)
        _, err = sink.communicate(timeout=60)
    assert (source.returncode, sink.returncode) == (0, 130)
    assert err.count(b"\n") == 1
    assert b"Traceback" not in err


def test_a_query_as_a_process_says_nothing_but_its_answer(streams: Streams) -> None:
    streams("publish", "a", "--create", given=lines_of({"n": n} for n in range(3)))
    done = run_process("stream", "query", "a", "SELECT sum(n) AS s FROM a", "--store", streams.path)
    assert (done.code, done.out, done.err) == (0, b'{"s":3}\n', "")
    wrong = run_process("stream", "query", "a", "SELECT x FROM a", "--store", streams.path, "--json")
    assert (wrong.code, wrong.out) == (1, b"")
    assert wrong.error["code"] == "bad_query"


def test_a_reader_that_has_enough_is_no_error(streams: Streams) -> None:
    streams("create", "a", "--field", "n:int")
    with hr.open(streams.path) as store, store.stream("a").publisher() as publisher:
        for _ in range(10):  # more than any pipe holds, in more than one write
            publisher.publish_batch(pa.table({"n": range(50_000)}))
    for words in (["cat", "a"], ["cat", "a", "--format", "arrow"], ["query", "a", "SELECT * FROM a"]):
        command = [*COMMAND, "stream", *words, "--store", str(streams.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(timeout=60) == 141, words


def test_a_query_is_answered_as_it_goes_and_can_be_interrupted(streams: Streams) -> None:
    streams("create", "a", "--field", "n:int")
    words = ["stream", "query", "a", "SELECT n FROM range(1000000000000) t(n)", "--store", str(streams.path)]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"n": 0}
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"error (interrupted): stopped before the end, as you asked\n"
