"""Certificates that sign themselves, for tests of TLS."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_NEW = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def self_signed(folder: Path, name: str = "localhost", *, days: int = 2) -> tuple[Path, Path]:
    """A certificate for this machine and its key, made by openssl; with -1 days it has expired."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    cert, key, asked = (folder / f"{name}.{kind}" for kind in ("crt", "key", "csr"))
    _run([*_NEW, "-subj", f"/CN={name}", "-addext", _NAMES, "-keyout", key, "-out", asked])
    signing = ["openssl", "x509", "-req", "-in", asked, "-signkey", key, "-copy_extensions", "copy"]
    _run([*signing, "-days", str(days), "-out", cert])
    return cert, key


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True, capture_output=True)
