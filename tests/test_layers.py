"""Who may import whom, and what a file may touch, by the folder that it is in."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# The libraries in common/, then the programs, then the Python interface and what is made with it.
MAY_IMPORT: dict[str, set[str]] = {
    "ps_common": set(),
    "ps_client": {"ps_common"},
    "rl_agent": {"ps_common"},
    "ps_server": {"ps_common"},
    "ps_ctl": {"ps_common", "ps_client"},
    "ps_web": {"ps_common"},
    "ps_track": {"ps_common"},
    "rl_worker": {"ps_common", "ps_client", "rl_agent"},
    "rl_eval": {"ps_common", "rl_agent"},
    "rl_cluster": {"ps_common", "rl_agent"},
    "ps_rl": {"ps_common", "ps_client", "rl_agent", "ps_server", "rl_worker", "rl_eval", "rl_cluster"},
    "examples": {"ps_rl", "ps_common", "rl_agent"},
}
FOLDERS = {package: ROOT / package for package in MAY_IMPORT} | {
    library: ROOT / "common" / library for library in ("ps_common", "ps_client", "rl_agent")
}
# Decisions without side effects, wherever a folder has one of these names: a whole cluster of them runs in one thread.
PURE = {"machine", "state", "replication", "standby", "protocol", "algorithms"}
PURE_MAY_IMPORT = {"ps_common/settings"}
AN_ALGORITHM_MAY_IMPORT = {"rl_agent", "rl_agent/environments", "rl_agent/networks", "rl_agent/replay"}
IMPURE = {
    "asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "select",
    "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "zmq",
}  # fmt: skip
# The only folders that know ZeroMQ.
SHELLS = {"ps_common/sockets", "ps_client/shell", "ps_server/shell", "ps_web"}
# The client serves anything that has parameters, the agent acts without a server.
NEVER = {"ps_client": {"gymnasium", "ale_py", "torch.nn"}, "rl_agent": {"zmq"}}
# The launcher and its children; and a setting that has no flag because the C library reads it.
MAY_USE_THE_ENVIRONMENT = {
    "ps_common/program/resources.py",
    "ps_common/program/start.py",
    "ps_common/program/child_processes.py",
    "ps_common/program/fork_server.py",
    "ps_common/program/objects.py",
    "ps_common/program/reasons.py",
    "rl_agent/environments/process_guard.py",
}
# A constant of the process, though a file has it.
READS_ITS_OWN_COMMIT = {"ps_common/release.py"}
MOST_FILES, MOST_LINES, MOST_FUNCTION_LINES = 16, 300, 40
TABLES = {"ps_common/protocol/messages.py", "ps_common/settings/run_spec.py"}


class Source:
    """A file of ours, with the dotted names of all modules that it imports, wherever in it."""

    def __init__(self, package: str, path: Path) -> None:
        self.package, self.path = package, path
        self.name = Path(package, path.relative_to(FOLDERS[package])).as_posix()
        self.folder = self.name.rpartition("/")[0]
        self.tree = ast.parse(path.read_text())
        self.modules = set(self._modules())

    def _modules(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: relative imports hide the layer"
                assert node.module
                is_ours = node.module.partition(".")[0] in MAY_IMPORT
                for module in (f"{node.module}.{alias.name}" for alias in node.names):
                    yield module if file_of(module) or not is_ours else node.module

    @property
    def packages(self) -> set[str]:
        return {module.partition(".")[0] for module in self.modules}

    @property
    def ours(self) -> set[str]:
        """The imported modules that are ours."""
        return {module for module in self.modules if module.partition(".")[0] in MAY_IMPORT}

    @property
    def is_pure(self) -> bool:
        return is_pure(self.folder) and self.name not in READS_ITS_OWN_COMMIT


def file_of(module: str) -> Path | None:
    """The file of a module of ours; None for a package, a name within a module, and what is not ours."""
    package, _, rest = module.partition(".")
    file = FOLDERS[package] / f"{rest.replace('.', '/')}.py" if package in MAY_IMPORT and rest else None
    return file if file is not None and file.exists() else None


def folder_of(module: str) -> str:
    return (module if file_of(module) is None else module.rpartition(".")[0]).replace(".", "/")


def room_of(module: str) -> str:
    """The folder of a module; a file at the top of its package is a room of its own."""
    return folder if "/" in (folder := folder_of(module)) else module.replace(".", "/")


def is_pure(folder: str) -> bool:
    return folder == "ps_common" or folder.rpartition("/")[2] in PURE


def sources() -> list[Source]:
    return [Source(package, path) for package, folder in FOLDERS.items() for path in sorted(folder.rglob("*.py"))]


SOURCES = sources()


def against_an_arrow(source: Source) -> set[str]:
    return {module.partition(".")[0] for module in source.ours} - MAY_IMPORT[source.package] - {source.package}


def impure(source: Source) -> set[str]:
    """What a file of a pure folder must not import: what touches the outside, and folders that do."""
    may = PURE_MAY_IMPORT | (AN_ALGORITHM_MAY_IMPORT if source.folder == "rl_agent/algorithms" else set())
    folders = {folder for folder in map(folder_of, source.ours) if not is_pure(folder)}
    return (source.packages & IMPURE) | (folders - may)


def test_packages_import_along_the_arrows() -> None:
    assert {source.name: found for source in SOURCES if (found := against_an_arrow(source))} == {}
    for source in SOURCES:
        for name in NEVER.get(source.package, ()):
            assert not [module for module in source.modules if f"{module}.".startswith(f"{name}.")], source.name


def test_files_of_pure_folders_touch_nothing_outside() -> None:
    assert {source.name: found for source in SOURCES if source.is_pure and (found := impure(source))} == {}


@pytest.mark.parametrize(
    ("check", "line", "places"),
    [
        (impure, "import time", {source.folder for source in SOURCES if source.is_pure}),
        (impure, "from ps_common.sockets import curve", {s.folder for s in SOURCES if s.folder.endswith("/machine")}),
        (against_an_arrow, "import ps_ctl.cli", {source.package for source in SOURCES} - {"ps_ctl"}),
        (against_an_arrow, "from rl_agent import agent", {"ps_common", "ps_client", "ps_server", "ps_web"}),
    ],
    ids=["a clock", "a socket", "a program", "the agent"],
)
def test_a_file_that_breaks_the_rule_is_found_in_every_folder(
    check: Callable[[Source], set[str]], line: str, places: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert places
    for place in places:
        package = place.partition("/")[0]
        file = tmp_path / place / "added.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"def later():\n    {line}\n")
        folders = FOLDERS | {package: tmp_path / package}
        source = Source.__new__(Source)
        with monkeypatch.context() as patched:
            patched.setitem(FOLDERS, package, folders[package])
            Source.__init__(source, package, file)
        assert check(source), f"{line!r} in {place}"


def first_circle(arrows: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as circle:
        return list(circle.args[1])
    return []


def test_neither_modules_nor_folders_import_each_other_in_circles() -> None:
    modules = {source.name[:-3].replace("/", "."): source.ours for source in SOURCES}
    assert first_circle(modules) == []
    rooms: dict[str, set[str]] = {}
    for module, imported in modules.items():
        room = room_of(module)
        rooms.setdefault(room, set()).update(other for other in map(room_of, imported) if other != room)
    assert first_circle(rooms) == []


def test_only_the_shells_know_zeromq() -> None:
    assert {source.folder for source in SOURCES if "zmq" in source.packages} <= SHELLS | {"examples"}


def test_a_stranger_finds_a_way_through_every_folder() -> None:
    folders = {source.path.parent for source in SOURCES}
    assert {folder for folder in folders if len(list(folder.glob("*.py"))) > MOST_FILES} == set()
    long = {source.name: len(source.path.read_text().splitlines()) for source in SOURCES if source.name not in TABLES}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES} == {}


def test_functions_fit_on_a_screen() -> None:
    long = {}
    for source in SOURCES:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    long[f"{source.name}:{node.name}"] = lines
    assert long == {}


def test_settings_are_flags_and_not_the_environment() -> None:
    reads = {"environ", "getenv", "putenv"}
    users = {
        source.name
        for source in SOURCES
        if any(isinstance(node, ast.Attribute) and node.attr in reads for node in ast.walk(source.tree))
    }
    assert users == MAY_USE_THE_ENVIRONMENT


PICKLES = {"ps_common/program/objects.py": {"pickle"}, "ps_rl/custom_objects.py": {"cloudpickle"}}


def test_nothing_but_what_a_parent_hands_to_its_children_is_unpickled_and_nothing_evaluated() -> None:
    for source in SOURCES:
        pickles = source.packages & {"pickle", "cloudpickle", "dill", "shelve", "marshal"}
        assert pickles <= PICKLES.get(source.name, set()), source.name
        calls = [node.func for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
        assert not {f.id for f in calls if isinstance(f, ast.Name)} & {"eval", "exec"}, source.name
        loads = [f for f in calls if isinstance(f, ast.Attribute) and f.attr == "load"]
        names = {f.value.id for f in loads if isinstance(f.value, ast.Name)}
        assert not names & {"torch", "np", "numpy"}, source.name


def test_programs_that_only_ask_questions_do_not_wait_for_torch() -> None:
    modules = "ps_common.sockets.request, ps_ctl.cli, rl_cluster.cli"
    check = f"import {modules}, sys; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
