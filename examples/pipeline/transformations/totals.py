"""What the pipeline is made of: a flow from one stream into another."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

STORE = os.environ["PIPELINE_STORE"]

dp.create_sink("totals", "headrace", {"path": STORE, "stream": "totals", "orderBy": "at"})


@dp.append_flow(target="totals")
def totals_by_hour() -> DataFrame:
    spark = SparkSession.active()
    orders = spark.readStream.format("headrace").option("path", STORE).option("stream", "orders").load()
    return (
        orders.withWatermark("at", "0 seconds")
        .groupBy(f.window("at", "1 hour"))
        .agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))
        .select(f.col("window.end").alias("at"), "orders", "amount")
    )
