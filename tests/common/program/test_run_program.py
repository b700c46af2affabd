"""How a program ends."""

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from common.program.run_program import run_program
from common.program.stop_signals import Interrupted


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


@pytest.mark.usefixtures("thawed")
def test_the_garbage_collector_runs_from_then_on() -> None:
    gc.disable()  # as ps_server/__main__.py does before it imports
    seen: list[bool] = []
    with pytest.raises(SystemExit):
        run_program(lambda: seen.append(gc.isenabled()), "oven")
    assert seen == [True]


@pytest.mark.usefixtures("thawed")
def test_a_fault_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        run_program(lambda: 1 // 0, "oven")


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


LATE = """
import os, sys
from common.program.run_program import run_program
from common.program.stop_signals import StopSignal

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
