"""Redriving: dead jobs chosen by SQL, repaired by SQL, and put back exactly once.

    redrive(spark, "data", "pages", where="attempts >= 5 AND resource LIKE 'http:%'",
            repair={"resource": "replace(resource, 'http:', 'https:')"})

Spark reads the view `journal`, of which the dead jobs that fit are collected with what they shall be. One
operation of the journal then takes them from the dead and puts them anew. A job that is not dead any more is
passed over, so whatever is repeated changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from headrace.journal.job import Data
from headrace.journal.value import Type, decode
from headrace.kernel.errors import BadSettings, SchemaMismatch
from headrace.spark.explain import plain_words
from headrace.spark.job import NodeOptions, Progress, StorePlace, place_of, watched
from headrace.spark.journal_history import TYPE_NAMES
from headrace.spark.journal_sink import opened_journal
from headrace.spark.journal_view import check_journal

REPAIRABLE = ("resource", "value", "priority")
_TYPES = {name: Type(number) for number, name in TYPE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Repaired:
    """A dead job, and what it is put back as."""

    id: int
    was: str
    resource: str
    value: Data
    priority: int

    @property
    def renamed(self) -> str | None:
        """None if it keeps its resource: bytes that are no text are not what Spark has seen of them."""
        return None if self.resource == self.was else self.resource


@dataclass(frozen=True, slots=True)
class Redriven:
    """What came of it: `chosen` jobs fitted, `put_back` of them were put; none if it was only tried."""

    journal: str
    chosen: tuple[Repaired, ...]
    put_back: int
    dry_run: bool


def redrive(
    spark: SparkSession,
    store: StorePlace,
    journal: str,
    *,
    where: str = "true",
    repair: Mapping[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    **node: Unpack[NodeOptions],
) -> Redriven:
    """Put the dead jobs back that `where` chooses; `repair` gives columns as SQL over the view."""
    check_repair(repair or {})
    place = place_of(spark, store, node)
    check_journal(place, journal)
    with plain_words(), watched(spark, progress):
        frame = spark.read.format("headrace").options(**place.options, journal=journal, view="journal").load()
        chosen = _collected(frame.where("state = 'dead'").where(where), repair or {})
    if dry_run or not chosen:
        return Redriven(journal, chosen, 0, dry_run)
    with place.opened() as opened, opened_journal(opened, journal) as jobs:
        count = jobs.redrive_as([(job.id, job.renamed, job.value, job.priority) for job in chosen])
    return Redriven(journal, chosen, count, dry_run)


def check_repair(repair: Mapping[str, str]) -> None:
    for name in repair:
        if name not in REPAIRABLE:
            raise BadSettings(f"{name!r} cannot be repaired: only {', '.join(REPAIRABLE)}")


def _collected(frame: DataFrame, repair: Mapping[str, str]) -> tuple[Repaired, ...]:
    columns = [
        sf.col("id"),
        sf.col("resource").alias("was"),
        sf.col("type"),
        sf.col("value").alias("raw"),
        sf.expr(repair.get("resource", "resource")).alias("resource"),
        sf.expr(repair.get("priority", "priority")).alias("priority"),
        sf.expr(repair.get("value", "CAST(NULL AS STRING)")).alias("value"),
    ]
    found: pa.Table = frame.select(*columns).orderBy("id").toArrow()
    return tuple(_repaired(row, "value" in repair) for row in found.to_pylist())


def _repaired(row: dict[str, Any], new_value: bool) -> Repaired:
    resource, priority, value = row["resource"], row["priority"], row["value"]
    where = f"job {row['id']} ({row['was']})"
    if not isinstance(resource, str) or not resource:
        raise SchemaMismatch(f"{where} would have the resource {resource!r}: it must be a text")
    if not isinstance(priority, int) or not 0 <= priority <= 255:
        raise SchemaMismatch(f"{where} would have the priority {priority!r}: it is a number from 0 to 255")
    if not new_value:
        value = decode(_TYPES.get(row["type"], Type.BUFFER), row["raw"] or b"")
    elif isinstance(value, bytearray):
        value = bytes(value)
    if not isinstance(value, bytes | str | int | float | bool | None):
        raise SchemaMismatch(
            f"{where} would have a value of type {type(value).__name__}: cast it to a string, binary, "
            "bigint, double or boolean"
        )
    return Repaired(row["id"], row["was"], resource, value, priority)
