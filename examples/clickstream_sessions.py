"""Clicks become visits: session windows on Spark, from a stream into a stream.

A visit ends when a user has not clicked for half an hour. Keys of a stream never go back, so nothing comes
late: the watermark needs no delay, and a visit is published once any click shows that its half hour is over.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import functions as f

import headrace as hr

MORNING = datetime(2026, 7, 1, 8, tzinfo=UTC)
PAUSE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Click:
    at: datetime
    user: str
    page: str


def visits(clicks: list[Click]) -> list[tuple[str, int]]:
    """What Spark must find: the visits that are over at the last click, by plain Python."""
    last: dict[str, datetime] = {}
    counts: dict[str, int] = {}
    over = []
    for click in [*clicks, *(Click(clicks[-1].at, user, "") for user in {each.user for each in clicks})]:
        if click.user in last and click.at - last[click.user] >= PAUSE:
            over.append((click.user, counts.pop(click.user)))
        last[click.user] = click.at
        counts[click.user] = counts.get(click.user, 0) + 1
    return over


shutil.rmtree("click-data", ignore_errors=True)
luck = random.Random(3)
times = sorted(luck.randrange(12 * 3600) for _ in range(2000))
clicks = [
    Click(MORNING + timedelta(seconds=s), f"user-{luck.randrange(80)}", luck.choice("abc")) for s in times
]
with hr.open("click-data") as store, store.stream("clicks", Click, order_by="at").publisher() as publisher:
    for click in clicks:
        publisher.publish(click)

spark = hr.spark.session(master="local[2]", log="click-data/spark.log")
stream = spark.readStream.format("headrace").option("path", "click-data").option("stream", "clicks")
by_visit = (
    stream.load()
    .withWatermark("at", "0 seconds")
    .groupBy(f.session_window("at", "30 minutes").alias("visit"), "user")
    .agg(f.count("*").alias("clicks"))
    .select(f.col("visit.end").alias("at"), "user", "clicks")
)
query = (
    by_visit.writeStream.format("headrace")
    .option("path", "click-data")
    .option("stream", "visits")
    .option("orderBy", "at")
    .option("checkpointLocation", "click-data/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

found = [
    (entry.value["user"], entry.value["clicks"]) for entry in hr.open("click-data").stream("visits").listen()
]
longest = max(found, key=lambda visit: visit[1])
print(f"{len(clicks)} clicks made {len(found)} visits; the longest, of {longest[0]}, had {longest[1]} clicks")
assert sorted(found) == sorted(visits(clicks)), "plain Python finds the same"
