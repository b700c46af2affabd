"""
What an environment has started ends with the process that plays it, however that ends.

ViZDoom plays each game in a process of its own, which does not notice that its worker was killed, does not hear
SIGTERM, and has 10 MiB of shared memory. So a process that plays such environments has a guard: this file, run as a
small program beside it. Whatever is started carries a mark in its environment variables; when the guard's parent is
gone, the guard kills every process with the mark, and removes ViZDoom's shared memory.

Linux alone: elsewhere there is no /proc to find the marked in. The standard library is all that may be imported.
"""

import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "PS_RL_STARTED_BY"
LOOK_SECONDS = 0.25  # between two looks whether the parent is there
MOST_ROUNDS = 100  # of killing: what is being killed may start something
ROUND_SECONDS = 0.05
SHARED_MEMORY = "/dev/shm/ViZDoom"

_guarded: set[int] = set()  # this process, once it has a guard; one that was forked from it has none


def guard_what_is_started() -> None:
    """From now on whatever this process starts ends with it; once is enough."""
    if sys.platform != "linux" or os.getpid() in _guarded:
        return
    _guarded.add(os.getpid())
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    variables = {name: value for name, value in os.environ.items() if name != MARK}
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid()), mark]
    # A session of its own: what a terminal or a shell ends with the worker's group must not end the guard.
    os.posix_spawn(sys.executable, command, variables, file_actions=nowhere, setsid=True)
    os.environ[MARK] = mark


def main(parent: int, mark: str) -> None:
    """The guard."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    memory: set[str] = set()
    for _ in range(MOST_ROUNDS):
        found = _marked(f"{MARK}={mark}".encode())
        if not found:
            break
        for process in found:
            memory |= _shared_memory_of(process)
            with suppress(OSError):  # it has ended meanwhile
                os.kill(int(process.name), signal.SIGKILL)
        time.sleep(ROUND_SECONDS)
    for path in memory:
        Path(path).unlink(missing_ok=True)


def _marked(mark: bytes) -> list[Path]:
    """The folders in /proc of processes that were started with the mark; those of others cannot be read."""
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
        lines = (process / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line[line.index("/") :] for line in lines if SHARED_MEMORY in line and not line.endswith(" (deleted)")}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
