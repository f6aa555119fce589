"""A node that keeps copies of another node's streams, because its settings say so."""

from __future__ import annotations

from pathlib import Path

from tests.server.http_node import Daemon

import headrace as hr


def test_a_node_keeps_the_copies_that_its_settings_name(tmp_path: Path) -> None:
    source = Daemon(tmp_path / "there")
    with (
        hr.connect(f"http://127.0.0.1:{source.port}") as store,
        store.stream("orders", bytes).publisher() as publisher,
    ):
        for number in range(5):
            publisher.publish(b"%d" % number)
    config = tmp_path / "headrace.toml"
    config.write_text(
        f'[[follow]]\nurl = "http://127.0.0.1:{source.port}"\nstream = "orders"\nname = "copy"\n'
        f'[[follow]]\nurl = "http://127.0.0.1:{source.port}"\nstream = "not-yet"\n'
    )
    copying = Daemon(tmp_path / "here", "--config", str(config))
    try:
        with hr.connect(f"http://127.0.0.1:{copying.port}") as store:
            while "copy" not in store.streams():  # until it has begun
                pass
            copied = store.stream("copy").listen(follow=True, count=5)
            assert [entry.value for entry in copied] == [b"%d" % number for number in range(5)]
        copying.process.terminate()
        assert copying.process.wait(60) == 0  # copies are let go, also the one that waits for its source
    finally:
        copying.kill()
        source.kill()
