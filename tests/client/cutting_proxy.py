"""A proxy between a client and a node that loses answers: the request goes through, the answer does not."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class CuttingProxy:
    def __init__(self, port: int) -> None:
        self._node = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._cuts = 0
        self.lost = 0
        """How many answers were lost."""
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, answers: int = 1) -> None:
        """The next answers are lost, each with its connection."""
        with self._lock:
            self._cuts = answers

    def cut_all(self) -> None:
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                node = socket.create_connection(("127.0.0.1", self._node))
                self._open |= {client, node}
                for work in ((client, node, False), (node, client, True)):
                    threading.Thread(target=self._carry, args=work, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if answers and self._loses():
                    break
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            if each in self._open:
                self._open.discard(each)

    def _loses(self) -> bool:
        with self._lock:
            if not self._cuts:
                return False
            self._cuts -= 1
            self.lost += 1
            return True


@contextlib.contextmanager
def cutting(port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
