"""How a program ends."""

import gc
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ps_common.program.child_processes import Child
from ps_common.program.reasons import Reason
from ps_common.program.run_program import run_program
from ps_common.program.stop_signals import Interrupted

ROOT = Path(__file__).parents[3]


@pytest.fixture
def thawed() -> Iterator[None]:
    """Leaves nothing frozen for the tests that follow."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize(("outcome", "status"), [(0, 0), (3, 3), (KeyboardInterrupt(), 130), (Interrupted(), 0)])
def test_a_program_ends_with_the_status_of_its_main(outcome: Any, status: int) -> None:
    def main() -> int:
        if isinstance(outcome, BaseException):
            raise outcome
        return int(outcome)

    with pytest.raises(SystemExit) as exit_:
        run_program(main, "oven")
    assert exit_.value.code == status


@pytest.mark.usefixtures("thawed")
def test_imported_objects_are_frozen_for_the_garbage_collector() -> None:
    imported = len(gc.get_objects())
    seen: list[int] = []
    with pytest.raises(SystemExit):
        run_program(lambda: seen.append(len(gc.get_objects())), "oven")
    assert seen[0] < imported / 100


# A program as others start it: what it says of its end comes through a pipe, and a user's code may do anything.
USERS = """
import atexit, logging, multiprocessing, os, sys, threading, time, ps_common.program.run_program as ends
from ps_common.errors import SettingsError
from ps_common.program.reasons import answer_to_parent, report_reason
from ps_common.program.output import log_as
from ps_common.program.run_program import ProgramEnd, bounded, end_in_time, run_program

def fails():
    raise ValueError("the track file is missing")

def main():
    print("the last line", flush=True)
    {body}
    return 0

if __name__ == "__main__":
    answer_to_parent()
    try:
        run_program(main, "oven")
    except ProgramEnd as end:
        end_in_time(end)
        raise
"""


def ended(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    (tmp_path / "users_own.py").write_text(USERS.format(body=body))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}:{ROOT / 'common'}")
    child = Child("users_own", [], tmp_path / "log")
    try:
        assert child.wait(within_seconds=60), "it ends"
    finally:
        child.end(within_seconds=0)
    return child


@pytest.mark.parametrize(
    ("body", "why", "status"),
    [
        ("fails()", "ValueError: the track file is missing (users_own.py, line 9)", 1),
        ("raise SettingsError('--heat 900: is too hot')", "--heat 900: is too hot", 2),
        ("sys.exit()", "sys.exit() was called (users_own.py, line 13)", 1),
        ("sys.exit(3)", "sys.exit(3) was called (users_own.py, line 13)", 1),
        ("quit()", "sys.exit() was called (users_own.py, line 13)", 1),
        ("raise KeyboardInterrupt", "KeyboardInterrupt (users_own.py, line 13)", 130),
        ("os._exit(0)", "exit status 0, without a reason", 0),
        ("os.abort()", "killed by SIGABRT", -6),
        ("report_reason('left', 'done'); fails()", "ValueError: the track file is missing (users_own.py, line 9)", 1),
    ],
)
def test_a_program_that_does_not_come_to_its_end_has_died_of_a_reason(
    body: str, why: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = ended(body, tmp_path, monkeypatch)
    assert (child.has_died, child.cause_of_death(), child.exit_status) == (True, why, status)


HANGS = """
    log_as("oven")
    logging.info("a line that waits")
    try:
        {before}
    finally:
        with bounded("close()", "oven", seconds=0.05):
            threading.Event().wait()
"""


def without_stamps(log: Path) -> str:
    return re.sub(r"(?m)^.* INFO oven: ", "", log.read_text())


PRINTED = "the last line\na line that waits\nclose() has not returned within 0.05 s; the process ends without it\n"


@pytest.mark.parametrize(
    ("before", "why", "status", "printed"),
    [
        (
            "fails()",
            "ValueError: the track file is missing (users_own.py, line 9)",
            1,
            "ValueError: the track file is ",
        ),
        ("raise SettingsError('too hot')", "too hot", 2, "oven: too hot"),
    ],
)
def test_an_error_and_what_is_printed_survive_a_close_that_hangs(
    before: str, why: str, status: int, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = ended(HANGS.format(before=before).strip(), tmp_path, monkeypatch)
    assert (child.has_died, child.cause_of_death(), child.exit_status) == (True, why, status)
    log = without_stamps(tmp_path / "log")
    assert log.startswith(PRINTED)
    assert printed in log.splitlines()[-1]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("pass", ""),
        ("report_reason('left', 'done')", "done"),
        ("atexit.register(os._exit, 5)", ""),
        ("atexit.register(fails)", ""),
    ],
)
def test_a_program_that_came_to_its_end_has_left_in_order(
    body: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = ended(body, tmp_path, monkeypatch)
    assert (child.has_left, child.reason) == (True, Reason("left", text))


@pytest.mark.parametrize(
    "left",
    [
        "atexit.register(threading.Event().wait)",
        "multiprocessing.get_context('spawn').Process(target=time.sleep, args=(20,)).start()",
    ],
)
def test_a_program_ends_though_python_waits_for_what_the_user_has_left(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = ended(f"ends.THREADS_SECONDS, ends.EXIT_SECONDS = 0.1, 0.2; {left}; return 4", tmp_path, monkeypatch)
    assert (child.exit_status, child.reason) == (4, Reason("failed", "exit status 4"))
    why = "a thread, an atexit function or a child process has not ended in time"
    assert f"oven: ends though {why}\n" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9.00 PiB for an array"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_settings_that_ask_for_too_much_memory_end_in_a_sentence(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def main() -> None:
        raise error

    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    with pytest.raises(SystemExit) as left:
        run_program(main, "oven")
    assert left.value.code == 1
    assert capsys.readouterr().err == f"oven: there is not enough memory for these settings: {error}\n"


SLOW = """
import os, signal, time
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""


def test_ctrl_c_while_a_program_imports_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    program = "from ps_common.program.start import start; start('slow_to_import', 'main')"
    path = {"PYTHONPATH": f"{ROOT / 'common'}:{tmp_path}"}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=os.environ | path, timeout=50, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


LATE = """
import os, sys
from ps_common.program.child_processes import Child
from ps_common.program.reasons import Reason
from ps_common.program.run_program import run_program
from ps_common.program.stop_signals import StopSignal

class Late:  # taken apart after the interpreter's signal handlers
    def __del__(self, write=os.write, kill=os.kill, pid=os.getpid(), number=int(sys.argv[1])):
        write(1, b"late")
        kill(pid, number)

sys.late = Late()

def main():
    StopSignal()
    return 3

run_program(main, "oven")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_stop_signal_while_the_interpreter_ends_changes_no_status(number: int) -> None:
    ended = subprocess.run([sys.executable, "-c", LATE, str(int(number))], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, b"late"), ended.stderr
