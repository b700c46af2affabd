"""Imports between rooms, and what a file may touch, by the folder that it is in."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.rows import row

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "common": {"common"},
    "examples": {"examples", "rl_worker", "common"},
    "ps_server": {"ps_server", "common"},
    "rl_worker": {"rl_worker", "common"},
    "ps_track": {"ps_track", "common"},
    "ps_web": {"ps_web", "common"},
}
# Decisions without side effects: a whole cluster of these runs in one thread. Files of the folder itself, not below it.
PURE_FOLDERS = [
    "common",
    "common/ps_common/protocol",
    "ps_server/machine",
    "ps_server/replication",
    "ps_server/state",
    "common/ps_client/machine",
    "common/rl_agent/algorithms",
]
IMPURE = {
    "asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "select",
    "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "zmq",
}  # fmt: skip
SHELL_FOLDERS = {
    "common/ps_common/sockets",
    "ps_server/shell",
    "ps_web",
    "common/ps_client/shell",
}  # the only ones that may know ZeroMQ
# The launcher and its children; and a setting that has no flag because the C library reads it.
MAY_USE_THE_ENVIRONMENT = {
    "common/ps_common/program/allocator.py",
    "common/ps_common/program/start.py",
    "common/rl_agent/environments/process_guard.py",
    "common/ps_common/program/child_processes.py",
    "common/ps_common/program/reasons.py",
}
MOST_FILES, MOST_LINES, MOST_FUNCTION_LINES = 16, 300, 40
TABLES = {"common/ps_common/protocol/messages.py", "common/ps_common/settings/run_spec.py"}


def sources() -> list[Path]:
    return sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules_imported_by(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            assert node.module
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name for name in below if (ROOT / f"{name.replace('.', '/')}.py").exists()} or {node.module}
    return names


def imported_by(path: Path) -> set[str]:
    """Top-level names of all imports of a file."""
    return {name.split(".")[0] for name in modules_imported_by(path)}


def attributes_of(path: Path) -> set[str]:
    return {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}


def test_packages_import_only_downwards() -> None:
    for package in MAY_IMPORT:
        with row(package):
            forbidden = MAY_IMPORT.keys() - MAY_IMPORT[package]
            for path in (ROOT / package).rglob("*.py"):
                assert not imported_by(path) & forbidden, path


def test_files_of_pure_folders_touch_nothing_outside() -> None:
    for folder in PURE_FOLDERS:
        with row(folder):
            files = sorted((ROOT / folder).glob("*.py"))
            assert files, f"{folder} has no files any more"
            for path in files:
                assert not imported_by(path) & IMPURE, path


def test_pure_folders_import_pure_folders() -> None:
    for folder in PURE_FOLDERS:
        with row(folder):
            for path in (ROOT / folder).glob("*.py"):
                ours = {name for name in modules_imported_by(path) if name.split(".")[0] in MAY_IMPORT}
                folders = {name.replace(".", "/").rpartition("/")[0] for name in ours if "." in name}
                assert folders <= {*PURE_FOLDERS, "common/ps_common/settings", *ALSO_IMPORTED.get(folder, ())}, path


ALSO_IMPORTED = {
    "common/rl_agent/algorithms": ("rl_worker", "common/rl_agent/environments", "common/rl_agent/networks")
}


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = {name_of(path)[:-3].replace("/", "."): modules_imported_by(path) for path in sources()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_only_the_shells_know_zeromq() -> None:
    users = {name_of(path.parent) for path in sources() if "zmq" in imported_by(path)}
    assert users == SHELL_FOLDERS


def test_a_stranger_finds_a_way_through_every_folder() -> None:
    folders = {path.parent for path in sources()}
    assert {name_of(folder) for folder in folders if len(list(folder.glob("*.py"))) > MOST_FILES} == set()
    long = {name_of(path): len(path.read_text().splitlines()) for path in sources() if name_of(path) not in TABLES}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES} == {}


def test_functions_fit_on_a_screen() -> None:
    long = {}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    long[f"{name_of(path)}:{node.name}"] = lines
    assert long == {}


def test_settings_are_flags_and_not_the_environment() -> None:
    users = {name_of(path) for path in sources() if attributes_of(path) & {"environ", "getenv", "putenv"}}
    assert users == MAY_USE_THE_ENVIRONMENT


def test_nothing_is_ever_unpickled_or_evaluated() -> None:
    for path in sources():
        assert not imported_by(path) & {"pickle", "cloudpickle", "dill", "shelve", "marshal"}, path
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not {f.id for f in calls if isinstance(f, ast.Name)} & {"eval", "exec"}, path
        loads = [f for f in calls if isinstance(f, ast.Attribute) and f.attr == "load"]
        assert not [f for f in loads if isinstance(f.value, ast.Name) and f.value.id in {"torch", "np", "numpy"}], path


@pytest.mark.parametrize("module", ["ps_common.sockets.request", "ps_ctl.cli", "rl_cluster.cli", "ps_bench.cli"])
def test_programs_that_only_ask_questions_do_not_wait_for_torch(module: str) -> None:
    check = f"import {module}, sys; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0
