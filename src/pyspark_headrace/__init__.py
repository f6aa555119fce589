"""What makes `spark.read.format("headrace")` work without a registration call.

Spark imports every top-level module whose name begins with `pyspark_` and registers its `DefaultSource`.
"""

from headrace.spark.datasource import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
