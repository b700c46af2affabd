"""
Child processes of an environment end with the process that steps it, even if that process is killed. And that process
ends with the one that has started it, even if it is stuck in an environment, where it heeds no signal.

ViZDoom runs each game in a child process. This child does not notice that its worker was killed, ignores SIGTERM, and
holds 10 MiB of shared memory. So a worker with such environments starts a guard: this file, run as a small program. The
worker's children inherit a mark in their environment variables. When the guard's parent is gone, the guard kills every
process with the mark and removes ViZDoom's shared memory. Where the worker has asked the kernel for a signal at its own
parent's death, the guard kills it when it is still there some seconds after that.

Linux only: the guard finds marked processes in /proc. The file imports the standard library alone, so that the guard
stays small.
"""

import ctypes
import math
import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "PS_RL_STARTED_BY"
POLL_SECONDS = 0.25  # between two checks of the parent
MOST_ROUNDS = 100  # of killing: a process that is being killed may start another
ROUND_SECONDS = 0.05
ORPHAN_SECONDS = 5.0  # for a worker to leave in order when its parent is gone
PR_GET_PDEATHSIG = 2
SHARED_MEMORY = "/dev/shm/ViZDoom"

_guarded: set[int] = set()  # the id of this process once it has a guard; a forked child has another id, and no guard


def guard_children() -> None:
    """Children that this process starts from now on end with it. Further calls do nothing."""
    if sys.platform != "linux" or os.getpid() in _guarded:
        return
    _guarded.add(os.getpid())
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    variables = {name: value for name, value in os.environ.items() if name != MARK}
    devnull = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), mark, str(_ends_with())]
    # The guard has its own session: a signal to the worker's process group must not end it.
    os.posix_spawn(sys.executable, command, variables, file_actions=devnull, setsid=True)
    os.environ[MARK] = mark


def leave_children_alone() -> None:
    """The process is a user's own, and so are its children: it gets no guard."""
    _guarded.add(os.getpid())


def main(parent: int, mark: str, starter: int) -> None:
    """Wait for the end of the parent, then kill the marked processes. `starter`: 0, or the parent's own parent."""
    orphaned = math.inf
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
        if starter and _parent_of(parent) != starter:
            orphaned = min(orphaned, time.monotonic())
        if time.monotonic() - orphaned > ORPHAN_SECONDS:
            os.kill(parent, signal.SIGKILL)
    memory: set[str] = set()
    for _ in range(MOST_ROUNDS):
        found = _marked(f"{MARK}={mark}".encode())
        if not found:
            break
        for process in found:
            memory |= _shared_memory_of(process)
            with suppress(OSError):  # the process has ended already
                os.kill(int(process.name), signal.SIGKILL)
        time.sleep(ROUND_SECONDS)
    for path in memory:
        Path(path).unlink(missing_ok=True)


def _ends_with() -> int:
    """The parent of this process, if it has asked for a signal at that one's death; else 0."""
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(number))
    return os.getppid() if number.value else 0


def _parent_of(process: int) -> int:
    """0 where it has ended meanwhile."""
    try:
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _marked(mark: bytes) -> list[Path]:
    """The /proc folders of processes with the mark; processes of other users cannot be read and are skipped."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(process)
        except OSError:
            continue
    return found


def _shared_memory_of(process: Path) -> set[str]:
    try:
        lines = (process / "maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {line[line.index("/") :] for line in lines if SHARED_MEMORY in line and not line.endswith(" (deleted)")}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
