"""Many sensors, a stream each, merged into one: and why a sensor that is silent must say so.

The job works on a moment once every sensor has passed it: HEAD of its stream tells. A sensor that has
nothing to say holds all others up, until its publisher moves HEAD without an entry.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field

import headrace as hr

SENSORS = [f"sensor-{n}" for n in range(6)]
SILENT = SENSORS[-1]


@dataclass(frozen=True, slots=True)
class Reading:
    second: int
    celsius: float


@dataclass(frozen=True, slots=True)
class Overview:
    second: int
    sensors: int
    mean: float


@dataclass
class Latest:
    """What is remembered: one state for all, as there is no `partition_by`."""

    celsius: dict[str, float] = field(default_factory=dict)


class Overviews:
    State = Latest

    def on_entry(self, stream: str, entry: hr.Entry, latest: Latest) -> None:
        latest.celsius[stream] = entry.value.celsius

    def on_head(self, second: int, latest: Latest) -> Overview:
        """A minute has passed, for all sensors."""
        return Overview(second, len(latest.celsius), sum(latest.celsius.values()) / len(latest.celsius))


def overviews() -> list[Overview]:
    return [entry.value for entry in hr.open("sensor-data").stream("overviews", Overview, "second").listen()]


shutil.rmtree("sensor-data", ignore_errors=True)
store = hr.open("sensor-data")
for number, name in enumerate(SENSORS):
    with store.stream(name, Reading, order_by="second").publisher() as publisher:
        for second in range(number, 200 if name == SILENT else 3600, 10):
            publisher.publish(Reading(second, 20.0 + number))
        if name != SILENT:
            publisher.head(3600)

spark = hr.spark.session("sensor-data", master="local[2]", log="sensor-data/spark.log")
job = hr.spark.tail_produce(
    spark, inputs=dict.fromkeys(SENSORS, Reading), output="overviews", output_type=Overview, head_every=60
)
job.producer(Overviews)

job.run("sensor-data/checkpoint")
before = overviews()
print(f"{SILENT} was last heard at 195: there are overviews up to second {before[-1].second}")

with store.stream(SILENT, Reading, order_by="second").publisher() as publisher:
    publisher.head(3600)  # alive, and nothing to say
job.run("sensor-data/checkpoint")
after = overviews()
print(f"it says that an hour is over: now up to second {after[-1].second}, mean {after[-1].mean} °C")

assert (before[-1].second, after[-1].second, len(after)) == (180, 3540, 59)
assert after[: len(before)] == before, "what was published stays"
