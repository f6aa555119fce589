"""Where a store is: in a directory, or on a node. What a job asks of either it asks here.

Streams are read through an origin, files through an inventory; for the rest there is the store itself, whose
verbs are the same over a path and through a node. Sessions that never go to a node need not have what that
takes: it is loaded when a url is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.kernel.errors import MissingExtra
from headrace.spark.inventory import FileInventory, Inventory
from headrace.spark.journal_history import JournalOrigin
from headrace.spark.origin import FileOrigin, Origin, existing_store
from headrace.store import Store

if TYPE_CHECKING:
    from headrace.client.remote import RemoteStore
    from headrace.spark.node_address import NodeAddress

    AnyStore = Store | RemoteStore


@dataclass(frozen=True, slots=True)
class Place:
    path: str = ""
    """Empty, if there is a url."""
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    away_s: int = 60
    """How long a node that is away is waited for."""

    def __str__(self) -> str:
        return self.url or self.path

    @property
    def options(self) -> dict[str, str]:
        """What `format("headrace")` is told of it."""
        if self.url is None:
            return {"path": self.path}
        given = {"url": self.url, "token": self.token, "ca": self.ca, "awaySeconds": str(self.away_s)}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def node(self) -> NodeAddress | None:
        """Where the node is; None for a directory."""
        if self.url is None:
            return None
        with _client():
            from headrace.spark.node_address import NodeAddress
        return NodeAddress(self.url, self.token, self.ca, self.away_s)

    def stream(self, name: str) -> Origin:
        if (node := self.node) is None:
            return FileOrigin(self.path, name)
        from headrace.spark.node_origin import NodeOrigin

        return NodeOrigin(node, name)

    def history(self, journal: str) -> Origin:
        """Every change of a journal that its log still has."""
        if (node := self.node) is None:
            return JournalOrigin(self.path, journal)
        from headrace.spark.node_history import NodeHistory

        return NodeHistory(node, journal)

    @property
    def inventory(self) -> Inventory:
        if (node := self.node) is None:
            return FileInventory(self.path)
        from headrace.spark.node_inventory import NodeInventory

        return NodeInventory(node)

    @contextmanager
    def opened(self) -> Iterator[AnyStore]:
        """The store, which is there already."""
        node = self.node
        with existing_store(self.path) if node is None else node.connected() as store:
            yield store


@contextmanager
def _client() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise MissingExtra("a url needs the client of a node: pip install 'headrace[client]'") from error
