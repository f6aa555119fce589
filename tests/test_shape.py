"""The shape of the code (STYLE): small files, small functions, few names, each file saying what it is.

Every exemption has its reason beside it, and each list is a ratchet: what is no longer needed must go.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "headrace"
FILES = sorted(SOURCE.rglob("*.py"))

LINES_MAX, LINES_USUAL = 500, 350
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 8
EXPORTS_MAX = 30
BANNED = {"utils", "util", "helpers", "helper", "common", "manager", "handler", "base", "misc"}

LONG_FILES: dict[str, str] = {}
MANY_PARAMETERS = {
    "log/log.py:Log.open": "all a log can be opened with; each is a keyword with a default",
}
ON_DISK = {
    "log/disk.py": "it is the seam",
    "log/wake.py": "inotify and polling look at files, they store nothing",
}
"""Files of `log` that may use the functions of `os` on files."""
LOOKS_AT_PATHS = {
    "log/wake.py": "see ON_DISK",
}

ASYNC_IN = ("server", "client", "cluster", "cli")
SPARK_IN = ("spark",)


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    yield from walk(tree_of(path), "")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def calls(path: Path) -> Iterator[str]:
    """What is called, as it is written: `open`, `os.open`, `time.time`."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 20


def check_ratchet(found: dict[str, int], most: int, exempt: dict[str, str]) -> None:
    """Everything found is within its limit or exempt, and every exemption is needed."""
    too_much = {name: size for name, size in found.items() if size > most and name not in exempt}
    assert not too_much, f"over {most}: {too_much}"
    needless = [name for name in exempt if found.get(name, 0) <= most]
    assert not needless, f"no longer needed, take them off the list: {needless}"


def test_no_file_is_long() -> None:
    found = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: lines for name, lines in found.items() if lines > LINES_MAX}
    check_ratchet(found, LINES_USUAL, LONG_FILES)


def test_every_function_fits_on_a_screen() -> None:
    found = {}
    for path in FILES:
        for name, function in functions(path):
            assert function.end_lineno is not None
            found[f"{name_of(path)}:{name}"] = function.end_lineno - function.lineno + 1
    check_ratchet(found, FUNCTION_LINES_MAX, {})


def test_no_function_has_many_parameters() -> None:
    found = {}
    for path in FILES:
        for name, function in functions(path):
            given = function.args
            names = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            if names[:1] in (["self"], ["cls"]):
                del names[0]
            found[f"{name_of(path)}:{name}"] = len(names)
    check_ratchet(found, PARAMETERS_MAX, MANY_PARAMETERS)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(tree_of(path))
    assert docstring, f"{name_of(path)} has no docstring"
    assert len(docstring.split()) >= 4, f"{name_of(path)} says too little of itself: {docstring!r}"


def test_no_name_that_names_no_concept() -> None:
    for path in SOURCE.rglob("*"):
        words = set(re.split(r"[_.]", path.name.lower()))
        assert not words & BANNED, f"{path.relative_to(SOURCE)}: {words & BANNED}"
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                words = set(re.findall(r"[a-z]+", re.sub(r"(?<!^)([A-Z])", r" \1", node.name).lower()))
                assert not words & (BANNED - {"base"}), f"{name_of(path)}: class {node.name}"


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=name_of)
def test_a_package_exports_few_names_and_says_which(path: Path) -> None:
    exported: list[str] = []
    imported: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            exported = ast.literal_eval(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            imported |= {alias.asname or alias.name for alias in node.names}
    assert len(exported) <= EXPORTS_MAX
    assert imported <= {*exported}, f"imported but not exported: {imported - {*exported}}"


def test_time_is_handed_in() -> None:
    """Durations may be measured (`time.monotonic`), moments come from a clock."""
    moments = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.datetime.now"}
    for path in FILES:
        if name_of(path) == "kernel/clock.py":
            continue
        used = moments & set(calls(path))
        assert not used, f"{name_of(path)} asks for the time itself: {used}"
    assert "time.time_ns" in set(calls(SOURCE / "kernel" / "clock.py"))


OS_ON_FILES = {
    f"os.{verb}"
    for verb in (
        "open", "read", "write", "pread", "pwrite", "pwritev", "preadv", "fsync", "fdatasync", "rename",
        "replace", "remove", "unlink", "link", "symlink", "mkdir", "makedirs", "rmdir", "truncate",
        "ftruncate", "listdir", "scandir", "stat", "fstat", "close", "posix_fallocate",
    )
}  # fmt: skip
PATH_VERBS = re.compile(
    r"\.(read_bytes|read_text|write_bytes|write_text|unlink|mkdir|rmdir|rename|touch|iterdir|glob|rglob)$"
)


def disk_use(path: Path) -> set[str]:
    used = {call for call in calls(path) if call in OS_ON_FILES or call in ("open", "io.open", "mmap.mmap")}
    return used | {name for name in imports(path) if name.split(".")[0] in ("shutil", "tempfile")}


def path_use(path: Path) -> set[str]:
    ours = ("disk.", "self._disk.")
    return {call for call in calls(path) if PATH_VERBS.search(call) and not call.startswith(ours)}


def test_only_the_disk_touches_files() -> None:
    log = [path for path in FILES if name_of(path).startswith("log/")]
    found = {name_of(path): len(disk_use(path)) for path in log}
    check_ratchet(found, 0, ON_DISK)
    looking = {name: len(path_use(SOURCE / name)) for name in found if name != "log/disk.py"}
    check_ratchet(looking, 0, LOOKS_AT_PATHS)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_optional_parts_are_imported_only_where_they_belong(path: Path) -> None:
    package = name_of(path).split("/")[0]
    for module in imports(path):
        root = module.split(".")[0]
        if root == "pyspark":
            assert package in SPARK_IN, f"{name_of(path)} imports {module}"
        if root == "asyncio":
            assert package in ASYNC_IN, f"{name_of(path)} imports {module}"


@pytest.mark.parametrize("path", [p for p in FILES if name_of(p).startswith("kernel/")], ids=name_of)
def test_the_kernel_imports_nothing_of_ours_but_itself(path: Path) -> None:
    ours = [name for name in imports(path) if name.split(".")[0] == "headrace"]
    assert all(name.startswith("headrace.kernel") for name in ours), ours


def test_every_module_of_the_log_has_a_test_or_a_reason() -> None:
    """`tests/` mirrors `src/headrace/`."""
    tested_elsewhere = {
        "active": "test_appender",
        "claim": "test_copy",
        "damage": "test_verify",
        "doubt": "tests/crash",
        "forks": "tests/crash/test_forks",
        "frame_cursor": "test_copy",
        "frame_stream": "test_copy",
        "framing": "test_appender",
        "inventory": "tests/spark/test_views",
        "landing": "test_copy",
        "large_group": "test_large_groups",
        "plan": "tests/spark/test_plan",
        "read_verbs": "test_log",
        "recover": "tests/crash",
        "repair": "test_verify",
        "replace_active": "test_cursor",
        "roll": "test_appender",
        "seek": "test_cursor",
        "segment_reader": "test_cursor",
        "start": "test_state",
        "target": "tests/conformance",
    }
    modules = {path.stem for path in FILES if name_of(path).startswith("log/")} - {"__init__"}
    tests = {path.stem.removeprefix("test_") for path in (Path(__file__).parent / "log").glob("test_*.py")}
    assert modules - tests - set(tested_elsewhere) == set()
    assert set(tested_elsewhere) <= modules - tests, "take what has a test now, or is gone, off the list"
