"""Child processes of an environment end with the process that steps it, whether it is killed or exits."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from rl_agent.environments.process_guard import MARK
from tests.ps_client.loopback_server import wait_until
from tests.ps_common.program.test_child_processes import is_running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a /proc on Linux alone")

# A child, and a child of it in a session of its own: both are told to the test, and wait for ever.
STARTS = """
import os, signal, subprocess, sys
from rl_agent.environments.process_guard import guard_children
guard_children()
guard_children()
WAITS = "import os, signal; os.write(1, (str(os.getpid()) + chr(10)).encode()); signal.pause()"
STARTS = f"subprocess.Popen([sys.executable, '-c', {WAITS!r}], start_new_session=True)"
PARENT = f"import subprocess, sys; {STARTS}; {WAITS}"
subprocess.Popen([sys.executable, "-c", PARENT])
"""
PLAYS = """
import sys
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
environments = make_environments(Environment(id="VizdoomBasic-v1"), count=2)
environments.reset(0)
print("plays", flush=True)
"""


@contextmanager
def a_process(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own; that group is gone after the block."""
    command = [sys.executable, "-c", f"{program}\nimport signal\nsignal.pause()"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, process_group=0, cwd=folder
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def guards_of(process: int) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(process).children()
        if any("process_guard" in part for part in child.cmdline())
    ]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_children_and_their_children_end_with_the_process(tmp_path: Path, how: signal.Signals) -> None:
    with a_process(STARTS, tmp_path) as process:
        assert process.stdout is not None
        started = [int(process.stdout.readline()) for _ in range(2)]
        (guard,) = guards_of(process.pid)
        assert all(map(is_running, started))
        assert MARK not in guard.environ(), "the guard would kill itself"
        process.send_signal(how)
        process.wait()
        wait_until(lambda: not any(map(is_running, [*started, guard.pid])), "they have ended, and so has the guard")


def test_the_guard_outlives_its_process_when_the_whole_group_is_killed(tmp_path: Path) -> None:
    with a_process(STARTS, tmp_path) as process:
        assert process.stdout is not None
        started = [int(process.stdout.readline()) for _ in range(2)]
        os.killpg(process.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, started)), "the one in another session has ended, too")


def test_what_others_have_started_goes_on(tmp_path: Path) -> None:
    with a_process(STARTS, tmp_path) as process, a_process(STARTS, tmp_path) as other:
        assert process.stdout is not None
        assert other.stdout is not None
        started = [int(process.stdout.readline()) for _ in range(2)]
        of_the_other = [int(other.stdout.readline()) for _ in range(2)]
        process.kill()
        process.wait()
        wait_until(lambda: not any(map(is_running, started)), "they have ended")
        assert all(map(is_running, of_the_other))
        other.kill()
        other.wait()
        wait_until(lambda: not any(map(is_running, of_the_other)), "these, too")


def test_a_killed_worker_leaves_neither_games_of_doom_nor_their_memory(tmp_path: Path) -> None:
    pytest.importorskip("vizdoom", reason="needs the extra doom")
    with a_process(PLAYS, tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        games = [child for child in psutil.Process(process.pid).children() if child.name() == "vizdoom"]
        assert len(games) == 2
        memory = {
            Path(line.split()[-1])
            for game in games
            for line in Path(f"/proc/{game.pid}/maps").read_text().splitlines()
            if "/dev/shm/ViZDoom" in line
        }
        assert memory
        assert all(path.exists() for path in memory)
        process.kill()
        process.wait()
        wait_until(lambda: not any(is_running(game.pid) for game in games), "the games have ended")
        wait_until(lambda: not any(path.exists() for path in memory), "their memory is given back")


@pytest.mark.parametrize("asks", [True, False])
def test_a_worker_that_is_stuck_ends_with_its_parent_if_it_has_asked_to(tmp_path: Path, asks: bool) -> None:
    """Without having asked, as one that was started by hand: its shell may end."""
    worker = f"""
import signal, os
from ps_common.program.reasons import die_with_parent
from rl_agent.environments.process_guard import guard_children
if {asks}:
    die_with_parent()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # as in a step that never returns
guard_children()
print(os.getpid(), flush=True)
signal.pause()
"""
    starts = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {worker!r}])"
    with a_process(starts, tmp_path) as starter:
        assert starter.stdout is not None
        stuck = psutil.Process(int(starter.stdout.readline()))
        try:
            starter.kill()
            starter.wait()
            if asks:
                wait_until(lambda: not is_running(stuck.pid), "the guard has killed it")
            else:
                with pytest.raises(psutil.TimeoutExpired):
                    stuck.wait(6.0)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                stuck.kill()
