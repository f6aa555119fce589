"""The command: `python -m bench` runs all parts, `python -m bench log` one of them.

A part is a module with `run(run: Run) -> Iterable[Table]`; to add one, name it in `PARTS`.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from pathlib import Path

from rich.console import Console

from bench.measure import Run, load, machine, markdown, render, workspace, write_json

PARTS = {name: f"bench.{name}" for name in ("log", "stream", "journal", "node", "spark")}


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the temporary data goes, too
    console = Console(width=max(Console().width, 150))
    console.print(machine())
    tables = []
    with workspace(options.dir) as directory:
        run = Run(directory, quick=options.quick, say=lambda text: console.print(f"[dim]… {text}[/]"))
        for part in options.parts or PARTS:
            for table in importlib.import_module(PARTS[part]).run(run):
                console.print(render(table))
                tables.append(table)
    console.print(load())
    if options.markdown:
        options.markdown.write_text("\n\n".join(map(markdown, tables)) + "\n")
    if options.json:
        write_json(options.json, tables, quick=options.quick)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the temporary data goes")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}: the parts are {', '.join(PARTS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
