"""Who may import whom. The picture in the README is a test, not a wish."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "common": {"common"},
    "ps_server": {"ps_server", "common"},
    "rl_worker": {"rl_worker", "common"},
}
# Decisions without effects: a whole cluster of these runs in one thread.
PURE = [
    "common/messages.py",
    "common/status.py",
    "common/wire.py",
    "common/tensors.py",
    "common/codecs.py",
    "common/errors.py",
    "common/meters.py",
    "common/buffer_pool.py",
    "common/schedules.py",
    "ps_server/parameter_server.py",
    "ps_server/training_run.py",
    "ps_server/phases.py",
    "ps_server/effects.py",
    "ps_server/denied.py",
    "ps_server/admission.py",
    "ps_server/guards.py",
    "ps_server/ledger.py",
    "ps_server/membership.py",
    "ps_server/progress.py",
    "ps_server/checkpoint_plan.py",
    "ps_server/quarantine.py",
    "ps_server/staleness.py",
    "ps_server/past_weights.py",
    "ps_server/turns.py",
    "ps_server/answers.py",
    "ps_server/reports.py",
    "ps_server/backlog.py",
    "ps_server/replication.py",
    "ps_server/whole_state.py",
    "ps_server/fencing.py",
    "ps_server/instances.py",
    "ps_server/lineage.py",
    "ps_server/sender.py",
    "ps_server/standby.py",
    "ps_server/status_report.py",
    "ps_server/optimizers.py",
    "ps_server/weight_store.py",
    "rl_worker/parameter_client.py",
    "rl_worker/introduction.py",
    "rl_worker/outbox.py",
    "rl_worker/unsaved.py",
    "rl_worker/silence.py",
    "rl_worker/stuck.py",
    "rl_worker/effects.py",
    "rl_worker/stall_watch.py",
    "rl_worker/returns.py",
]
IMPURE = {"zmq", "socket", "time", "threading", "asyncio", "os", "random", "logging", "subprocess", "signal"}
MAY_USE_ZMQ = {
    "common/curve.py",
    "common/zmq_connect.py",
    "common/zmq_dealer.py",
    "common/zmq_frames.py",
    "common/zmq_request.py",
    "ps_server/door.py",
    "ps_server/primary_link.py",
    "ps_server/replies.py",
    "ps_server/zmq_server.py",
    "rl_worker/zmq_client.py",
}
# The launcher, for its children; and a wish that has no flag because it is the C library's.
MAY_USE_THE_ENVIRONMENT = {"common/allocator.py", "rl_worker/children.py", "rl_worker/process_guard.py"}


def sources() -> list[Path]:
    return sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def imported_by(path: Path) -> set[str]:
    """Top-level names of all imports of a file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names.add((node.module or "").split(".")[0])
    return names


def attributes_of(path: Path) -> set[str]:
    return {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_downwards(package: str) -> None:
    forbidden = MAY_IMPORT.keys() - MAY_IMPORT[package]
    for path in (ROOT / package).rglob("*.py"):
        assert not imported_by(path) & forbidden, path


@pytest.mark.parametrize("path", PURE)
def test_pure_files_touch_nothing_outside(path: str) -> None:
    assert not imported_by(ROOT / path) & IMPURE


def test_only_the_shells_know_zeromq() -> None:
    users = {str(path.relative_to(ROOT)) for path in sources() if "zmq" in imported_by(path)}
    assert users == MAY_USE_ZMQ


def test_settings_are_flags_and_not_the_environment() -> None:
    users = {str(path.relative_to(ROOT)) for path in sources() if attributes_of(path) & {"environ", "getenv", "putenv"}}
    assert users == MAY_USE_THE_ENVIRONMENT


def test_nothing_is_ever_unpickled_or_evaluated() -> None:
    for path in sources():
        assert not imported_by(path) & {"pickle", "cloudpickle", "dill", "shelve", "marshal"}, path
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not {f.id for f in calls if isinstance(f, ast.Name)} & {"eval", "exec"}, path
        loads = [f for f in calls if isinstance(f, ast.Attribute) and f.attr == "load"]
        assert not [f for f in loads if isinstance(f.value, ast.Name) and f.value.id in {"torch", "np", "numpy"}], path


@pytest.mark.parametrize("module", ["common.zmq_request", "ps_server.control", "rl_worker.cluster"])
def test_who_only_asks_questions_does_not_wait_for_torch(module: str) -> None:
    check = f"import {module}, sys; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0


def test_every_thread_is_a_daemon_or_joined_with_a_limit() -> None:
    """A process that waits for a thread without end keeps its port, and cannot be asked to leave."""
    for path in sources():
        for call in [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]:
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            assert name != "Thread" or any(keyword.arg == "daemon" for keyword in call.keywords), path
            assert name != "join" or call.args or call.keywords, f"{path}: a join without a limit"
