"""headrace on Spark, through PySpark: nothing here processes data by itself.

    spark.read.format("headrace").option("path", "data").option("stream", "orders").load()

Where to look: `datasource` is what Spark asks; `reader` and `sink` read and write streams, `views` shows
what a store knows of itself; `tail_produce` is the face of jobs over several streams; `archive`, `compact`,
`verify`, `redrive` and `run` are jobs that are ready to use; `session` makes a session.
"""

from headrace.spark.archive import archive
from headrace.spark.compact import compact
from headrace.spark.explain import SparkFailed
from headrace.spark.redrive import redrive
from headrace.spark.run import run
from headrace.spark.session import JavaMissing, session
from headrace.spark.tail_produce import TailProduce, tail_produce
from headrace.spark.verify import verify
from headrace.stream.landing import NotTheOwner

__all__ = [
    "JavaMissing",
    "NotTheOwner",
    "SparkFailed",
    "TailProduce",
    "archive",
    "compact",
    "redrive",
    "run",
    "session",
    "tail_produce",
    "verify",
]
