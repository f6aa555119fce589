"""headrace on Spark, through PySpark: nothing here processes data by itself.

    spark.read.format("headrace").option("path", "data").option("stream", "orders").load()

Where to look: `datasource` is what Spark asks; `reader` and `sink` read and write streams, `views` shows
what a store knows of itself; `tail_produce` is the face of jobs over several streams; `session` makes a
session.
"""

from headrace.spark.landing import NotTheOwner
from headrace.spark.session import JavaMissing, session
from headrace.spark.tail_produce import TailProduce, tail_produce

__all__ = ["JavaMissing", "NotTheOwner", "TailProduce", "session", "tail_produce"]
