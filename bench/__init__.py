"""Benchmarks: headrace beside its peers and beside the limits of the machine, in one run.

    python -m bench [PART ...] [--quick] [--json FILE]

A time on its own says little on a shared machine. So each figure is measured together with what it is
compared to: the contenders take turns, round after round, on the same disk, and the best round of each
counts. `docs/benchmarks.md` tells what the figures mean and where headrace loses.
"""
