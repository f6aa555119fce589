"""The command line: `headrace <noun> <verb>`, one file per noun.

`app` is the root and the one place where errors become a line and an exit code; `console` is the one place
that prints; `log` lists the verbs of the noun `log`, and `log_*` hold them by what they do. A later noun is
a module with its own typer app, added to `app`.

What all commands keep to: stdout is data, stderr is talk; `--json` is for machines; input is checked before
anything is changed.
"""
