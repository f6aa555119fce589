"""Reading and writing through a node, for sessions that may never do so: what it needs is loaded here.

spark.read.format("headrace").option("url", "http://localhost:7400").option("stream", "orders").load()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql.types import StructType

from headrace.kernel.errors import BadSettings, MissingExtra
from headrace.spark.options import Options
from headrace.spark.origin import Origin
from headrace.spark.sink import Target


def check_for_node(options: Options) -> None:
    """Refuse what only those can do who have the store's directory."""
    if options.url is not None and (options.journal is not None or options.view is not None):
        what = "a journal" if options.journal is not None else f"the view {options.view!r}"
        raise BadSettings(f"{what} is for Spark where the store is: give its 'path', not a url")


def node_origin(options: Options) -> Origin:
    """The stream that is read."""
    with _client():
        from headrace.spark.node_address import node_address
        from headrace.spark.node_origin import NodeOrigin
    return NodeOrigin(node_address(options), options.stream_name)


def node_sink(options: Options, schema: StructType, *, patient: bool) -> Target:
    """The stream that is written. `patient`: a query is under way, and waits for a node that is away."""
    with _client():
        from headrace.spark.node_address import node_address
        from headrace.spark.node_sink import node_target
    address = node_address(options)
    if not patient:
        address.check()
    return node_target(address, options, schema)


@contextmanager
def _client() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "aiohttp":
            raise
        raise MissingExtra("a url needs the client of a node: pip install 'headrace[client]'") from error
