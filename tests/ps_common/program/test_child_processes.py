"""Child processes: their arguments and logs, their ends, and that none outlives its parent."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from ps_common.program.child_processes import OUTPUT_SECONDS, Child, PipedChild, end_all
from ps_common.program.reasons import Reason
from ps_rl import Run
from tests.ps_client.loopback_server import wait_until

SOON_SECONDS = 20.0
PROGRAMS = {
    "writes_and_leaves": "import sys\nprint('first'); print('last:', *sys.argv[1:]); sys.exit(3)",
    "writes_nothing": "",
    "waits": (
        "import signal\nfrom ps_common.program.reasons import answer_to_parent\n"
        "answer_to_parent()\nprint('ready', flush=True)\nsignal.pause()"
    ),
    "will_not_leave": (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n"
        "while True: signal.pause()"
    ),
    "leaves_one_behind": (
        "import os, signal\npid = os.fork()\nif not pid:\n    signal.pause()\nprint(pid, flush=True)\nos._exit(0)"
    ),
    "writes_errors": "import sys\nprint('to the log'); print('on stderr', file=sys.stderr)",
    "writes_threads": "import os\nprint(os.environ['OMP_NUM_THREADS'], os.environ['MKL_NUM_THREADS'], os.getsid(0))",
    "writes_a_sign": "print('2 × 3')",
    "imports_what_is_beside": "import beside_the_script, random\nprint(beside_the_script.__file__, random.__file__)",
    "is_a_parent": (
        "import pathlib, signal, sys\nfrom ps_common.program.child_processes import Child\n"
        "child = Child('waits', [], pathlib.Path(sys.argv[1]))\nprint(child.pid, flush=True)\nsignal.pause()"
    ),
}
SPEAKS = """
import os, sys
from ps_common.program.reasons import answer_to_parent, report_reason
answer_to_parent()
report_reason(sys.argv[1], "because")
print("the last line of its log")
"""
FORKS = """
import os
from ps_common.program.reasons import answer_to_parent, report_reason
answer_to_parent()
report_reason("left", "the parent's reason")
if os.fork() == 0:
    report_reason("failed", "the fork's reason")
    os._exit(0)
os.wait()
print("PS_RL_LAUNCHED" in os.environ)
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that a child can run by name."""
    for name, source in (PROGRAMS | {"speaks": SPEAKS, "forks": FORKS}).items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}:{ROOT / 'common'}")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Child]]:
    """Every child that a test starts ends with the test."""
    children: list[Child] = []
    yield children
    for child in children:
        child.end(within_seconds=0)


def start(started: list[Child], tmp_path: Path, module: str, *arguments: str) -> Child:
    started.append(Child(module, arguments, tmp_path / f"{module}.log"))
    return started[-1]


def log_of(child: Child) -> str:
    assert child.log is not None
    return child.log.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize(("how", "has_left", "is_over"), [("over", True, True), ("left", True, False)])
def test_a_child_that_says_so_has_left_in_order(
    started: list[Child], tmp_path: Path, how: str, has_left: bool, is_over: bool
) -> None:
    child = start(started, tmp_path, "speaks", how)
    assert child.wait(within_seconds=SOON_SECONDS)
    assert (child.has_left, child.is_over, child.has_died) == (has_left, is_over, False)
    assert child.has_done_its_work == is_over, "nobody has asked it to leave"
    assert child.reason == Reason(how, "because")  # type: ignore[arg-type]


def test_a_forked_process_does_not_speak_for_the_child_nor_find_its_parent(
    started: list[Child], tmp_path: Path
) -> None:
    child = start(started, tmp_path, "forks")
    assert child.wait(within_seconds=SOON_SECONDS)
    assert child.reason == Reason("left", "the parent's reason")
    assert log_of(child) == "False\n", "programs that it starts itself are not launched by its parent"


def test_a_child_imports_what_its_parent_can_and_nothing_of_the_working_folder(
    started: list[Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("of the script", "working"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "random.py").write_text("X = 1")
    (tmp_path / "of the script" / "beside_the_script.py").touch()
    (tmp_path / "of the script" / "random.py").unlink()
    monkeypatch.chdir(tmp_path / "working")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "of the script"), "", str(tmp_path / "working"), *sys.path])
    child = start(started, tmp_path, "imports_what_is_beside")
    assert child.wait(within_seconds=SOON_SECONDS)
    assert log_of(child) == f"{tmp_path}/of the script/beside_the_script.py {random.__file__}\n"


def test_a_second_interrupt_kills_the_process_of_a_run_that_is_waited_for(
    started: list[Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one has called `Run.stop`."""
    run = Run(tmp_path)
    run._child = stubborn = start(started, tmp_path, "will_not_leave")
    wait_until(lambda: log_of(stubborn) == "ready\n", "the child runs")

    def interrupted(**_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stubborn, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.stop()
    assert stubborn.wait(within_seconds=SOON_SECONDS)
    assert stubborn.exit_status == -signal.SIGKILL


def is_running(pid: int) -> bool:
    """A zombie is not running."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does this")
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "grandchild.log"
    with subprocess.Popen([sys.executable, "-m", "is_a_parent", str(log)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        try:
            wait_until(lambda: log.read_text() == "ready\n", "the grandchild runs")
            assert is_running(grandchild)
            parent.kill()
            parent.wait()
            wait_until(lambda: not is_running(grandchild), "the grandchild has ended")
        finally:
            parent.kill()
            if is_running(grandchild):
                os.kill(grandchild, signal.SIGKILL)


def test_children_that_leave_a_process_behind_are_not_waited_for_one_after_the_other(tmp_path: Path) -> None:
    """That process keeps their output open."""
    left: list[str] = []
    children = [PipedChild("leaves_one_behind", [], left.append) for _ in range(6)]
    try:
        wait_until(lambda: len(left) == len(children), "all have begun")
        assert all(child.wait(within_seconds=SOON_SECONDS) for child in children)
        begun = time.monotonic()
        end_all(children, within_seconds=SOON_SECONDS)
        assert OUTPUT_SECONDS * 0.9 < time.monotonic() - begun < OUTPUT_SECONDS * 4
    finally:
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
