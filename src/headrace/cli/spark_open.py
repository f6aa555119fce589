"""Opening Spark for a command: its options, and what is said where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import Ca, Token
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, opened_store, opened_stream
from headrace.kernel.errors import MissingExtra

if TYPE_CHECKING:
    from headrace.spark.place import Place
    from headrace.spark.quiet import Session

_PARTS = ("pyspark", "py4j", "pandas")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The options of every command that runs on Spark."""

    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark's master: local\\[4], spark://host:7077, yarn …")
    ] = "local[*]"
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; can be repeated."),
    ] = None
    spark_log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep what Spark itself prints, here.")
    ] = None

    @property
    def settings(self) -> dict[str, str]:
        pairs = [text.partition("=") for text in self.conf or ()]
        for key, equals, _ in pairs:
            if not equals or not key.startswith("spark."):
                raise typer.BadParameter(f"{key!r} is not spark.…=value", param_hint="--conf")
        return {key: value for key, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Where:
    """Where the store is: a directory, or a node."""

    store: StoreDir = DEFAULT_STORE
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A node in the place of a directory: http://host:7400.",
            show_default=False,
        ),
    ] = None
    token: Token = None
    ca: Ca = None

    @property
    def given(self) -> Path | str:
        return self.url or self.store

    def place(self) -> Place:
        """What jobs take, once it is known that it is there."""
        with spark_installed():
            from headrace.spark.job import place_of
        if self.url is not None:
            return place_of(None, None, {"url": self.url, "token": self.token, "ca": self.ca})
        with opened_store(self.store):
            return place_of(None, self.store, {})

    def check_stream(self, name: str) -> Place:
        """The same, and there is this stream."""
        place = self.place()
        if self.url is None:
            with opened_stream(self.store, name):
                pass  # what is wrong with it is said in the words of commands
        else:
            place.stream(name).about()
        return place


@contextmanager
def spark_installed() -> Iterator[None]:
    """For importing what needs Spark: where it is not installed, say how to."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _PARTS:
            raise MissingExtra(
                f"this needs Spark, and {error.name} is not installed: pip install 'headrace[spark]'"
            ) from None
        raise


@contextmanager
def opened_spark(store: Path | str, options: SparkOptions) -> Iterator[Session]:
    """A session for the command, stopped at its end."""
    with spark_installed():
        from headrace.spark.quiet import quiet_session
    with quiet_session(
        store, master=options.master, settings=options.settings, log=options.spark_log
    ) as spark:
        yield spark
