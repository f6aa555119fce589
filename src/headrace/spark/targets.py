"""Which target the sinks have: a stream or a journal, in a directory or on a node."""

from __future__ import annotations

from pyspark.sql.types import StructType

from headrace.spark.journal_sink import jobs_target
from headrace.spark.landing import Landing
from headrace.spark.options import Options
from headrace.spark.origin import existing_store
from headrace.spark.sink import SinkTarget, Target, sink_target
from headrace.stream.agreement import stored_declaration


def target_of(options: Options, schema: StructType, *, patient: bool) -> Target:
    """Where rows go, made if it is not there. `patient`: a query is under way, and waits for its node."""
    node = options.place.node
    if node is None:
        return sink_target(options, schema) if options.journal is None else jobs_target(options, schema)
    from headrace.spark.node_sink import node_jobs_target, node_target

    if not patient:
        node.check()
    if options.journal is None:
        return node_target(node, options, schema)
    return node_jobs_target(node, options, schema)


def existing_stream(options: Options) -> tuple[Target, bool]:
    """A stream that is there, for rows that are as it stores them; and whether it has an order key."""
    name, node = options.stream_name, options.place.node
    if node is not None:
        from headrace.spark.node_sink import stream_on_node

        declaration = stored_declaration(node.meta(name))
        return stream_on_node(node, options, declaration), declaration.order_by is not None
    with existing_store(options.place.path) as store:
        declaration = stored_declaration(store.meta(name))
    landing = Landing(options.place.path, name, options.writer, options.take_over)
    return SinkTarget(landing, declaration), declaration.order_by is not None
