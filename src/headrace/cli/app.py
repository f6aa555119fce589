"""The root command, and what becomes of errors.

Exit codes:

      0  done
      1  an error: one line on stderr, `error (code): sentence`
      2  wrong usage, told in the same form
      3  done, and damage was found on the way (verify, cat --skip-damaged, import …)
    130  interrupted                       141  nobody reads our output any more (`| head`)

Nobody sees a traceback, unless HEADRACE_TRACEBACK is set and the error is a bug of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace import __version__
from headrace.cli import config, journal, log, spark, stream, token
from headrace.cli.console import Exit, open_what_is_closed, print_error, route_warnings, silence_stdout
from headrace.cli.doctor import doctor
from headrace.cli.serve import serve
from headrace.kernel.errors import HeadraceError
from headrace.log.disk import error_for

UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Typer has it from click, its own or the real one depending on its version, but does not export it."""


class GuardedGroup(TyperGroup):
    """A group that ends every foreseeable error as one line and an exit code."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        json = wants_json(words)
        route_warnings(json)
        options |= {"standalone_mode": False, "obj": json}
        try:
            code = super().main(words, *rest, **options)
        except UsageError as error:
            code = _explain_usage(error, json)
        except (typer.Abort, KeyboardInterrupt):
            code = _interrupted(json)
        except OSError as error:  # printing help or the version; commands are guarded below
            print_error(*_words_for(error), json)
            silence_stdout()
            code = Exit.ERROR
        sys.exit(code if isinstance(code, int) else Exit.DONE)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        json, code = bool(ctx.obj), int(Exit.ERROR)
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # what fails now can still be told
        except (typer.Exit, typer.Abort, UsageError):
            raise
        except HeadraceError as error:
            print_error(error.code, str(error), json)
        except BrokenPipeError:
            silence_stdout()
            code = Exit.BROKEN_PIPE
        except OSError as error:
            print_error(*_words_for(error), json)
            silence_stdout()
        except KeyboardInterrupt:
            code = _interrupted(json)
        except Exception as error:
            if os.environ.get("HEADRACE_TRACEBACK"):
                raise
            kind = type(error).__name__
            advice = "this is a bug in headrace; HEADRACE_TRACEBACK=1 shows where"
            print_error("internal", f"{kind}: {error}: {advice}", json)
        raise typer.Exit(code)


def wants_json(words: Sequence[str]) -> bool:
    """Whether `--json` was given: asked before parsing, because parsing may be what fails."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _explain_usage(error: Any, json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        if error.message:  # with rich the help has been printed when the error was made
            error.show()
        return Exit.USAGE
    command = error.ctx.command_path if error.ctx is not None else "headrace"
    sentence = error.format_message().rstrip(".").replace("Value error, ", "")
    print_error("usage", f"{sentence} (see `{command} --help`)", json)
    return Exit.USAGE


def _words_for(error: OSError) -> tuple[str, str]:
    if error.filename is not None:
        known = error_for(error, Path(os.fsdecode(error.filename)))
        return known.code, str(known)
    return "io", f"input or output failed ({error.strerror or error})"


def _interrupted(json: bool) -> int:
    print_error("interrupted", "stopped before the end, as you asked", json)
    return Exit.INTERRUPTED


app = typer.Typer(
    cls=GuardedGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.add_typer(log.app, name="log")
app.add_typer(stream.app, name="stream")
app.add_typer(journal.app, name="journal")
app.add_typer(spark.app, name="spark")
app.add_typer(token.app, name="token")
app.add_typer(config.app, name="config")
app.command("serve")(serve)
app.command("doctor")(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A durable log under every kind of messaging.

    Data goes to stdout, everything else to stderr. Every command takes --json.
    """


def main() -> None:
    """The `headrace` program."""
    open_what_is_closed()
    app(prog_name="headrace")


if __name__ == "__main__":
    main()
