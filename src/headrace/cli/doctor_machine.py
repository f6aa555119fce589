"""What `headrace doctor` looks at on the machine: programs, limits of the kernel, and the disk."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headrace import __version__
from headrace.cli.findings import Finding, failed, ok, warning
from headrace.cli.quantities import format_count

_FILES_MIN = 4096
_INOTIFY = {"max_user_instances": 128, "max_user_watches": 8192}
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")
_SYNCS = 5
_SLOW_SYNC_MS = 50
_GIB = 1 << 30


def programs() -> Iterator[Finding]:
    yield ok("python", f"{platform.python_version()}, headrace {__version__}, pyarrow {pa.__version__}")
    missing = [name for name in ("aiohttp", "prometheus_client", "uvloop") if not _installed(name)]
    if missing:
        yield warning("server", f"{', '.join(missing)} not installed", "pip install 'headrace[server]'")
    else:
        yield ok("server", "all of [server] is installed")
    yield from _spark()


def _spark() -> Iterator[Finding]:
    if not _installed("pyspark"):
        yield ok("spark", "not installed, and needed by nothing else")
        return
    from headrace.spark.session import JavaMissing, check_java

    try:
        check_java()
        yield ok("spark", "pyspark and Java are there")
    except JavaMissing as error:
        yield warning("spark", "pyspark is there, but no Java that it can use", str(error))


def limits() -> Iterator[Finding]:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < _FILES_MIN:
        yield warning(
            "open files",
            f"{files} at most",
            f"ulimit -n {most if most > files else _FILES_MIN}, or LimitNOFILE= in the unit",
        )
    else:
        yield ok("open files", f"{format_count(files)} at most")
    folder = Path("/proc/sys/fs/inotify")
    if not folder.is_dir():
        yield warning("inotify", "there is none", "readers poll instead, which is slower")
        return
    low = [name for name, least in _INOTIFY.items() if int((folder / name).read_text()) < least]
    if low:
        advice = ", ".join(f"sysctl fs.inotify.{name}={_INOTIFY[name]}" for name in low)
        yield warning("inotify", f"{', '.join(low)} is low", advice)
    else:
        yield ok("inotify", "enough instances and watches")


def disk(folder: Path) -> Iterator[Finding]:
    """The disk below a directory that is there."""
    kind = file_system(folder)
    if kind in _REMOTE:
        yield failed("file system", f"{folder} is on {kind}", "stores are for local disks: move it to one")
    elif kind in ("tmpfs", "ramfs"):
        yield warning(
            "file system", f"{folder} is in memory ({kind})", "a reboot loses it: move it to a disk"
        )
    else:
        yield ok("file system", kind)
    usage = shutil.disk_usage(folder)
    free = f"{usage.free / _GIB:.1f} GiB of {usage.total / _GIB:.1f} free"
    if usage.free < _GIB // 10:
        yield failed("free space", free, "free some: publishing will be refused")
    elif usage.free < max(_GIB, usage.total // 20):
        yield warning("free space", free, "free some, or let retention remove more")
    else:
        yield ok("free space", free)
    yield _syncing(folder)


def _syncing(folder: Path) -> Finding:
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_SYNCS):
            file.write(os.urandom(4096))
            file.flush()
            began = time.monotonic()
            os.fsync(file.fileno())
            times.append(time.monotonic() - began)
    median_ms = sorted(times)[_SYNCS // 2] * 1000
    found = f"{median_ms:.2f} ms"
    if median_ms > _SLOW_SYNC_MS:
        return warning("fsync", found, "each durable publish waits for one: use a quicker disk")
    return ok("fsync", found)


def file_system(folder: Path) -> str:
    """The kind of file system that a directory is on."""
    place = str(folder.resolve())
    found = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted, kind, *_ = line.split(" ")
        mounted = mounted.replace("\\040", " ")
        inside = place == mounted or place.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(found[0]):
            found = (mounted, kind)
    return found[1]


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
