"""
The fork server of a program: a process that has imported what takes seconds, torch above all. The programs that
need these imports are forks of it: they begin in milliseconds, and share the memory of what was imported.

Each is a child of this process all the same: the process between the two ends at once, and this one adopts the fork, as
Linux allows. Other programs are started by exec, since a fork would take 30 MiB more; so is every program elsewhere,
and when the fork server has failed.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import math
import os
import runpy
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ps_common.program.reasons import LAUNCHED, die_with_parent

SET_NAME, SET_CHILD_SUBREAPER = 15, 36  # of prctl
ARG_START, ARG_END = 45, 46  # in /proc/self/stat, behind the name: where the words that ps shows begin and end
NAME = "ps_fork_server"  # in lists of processes
READY = b"ready"
NONE = b"0"  # in place of the id of a fork
MOST_BYTES = 2**20  # of a request; a socket takes less
POLL_SECONDS = 0.02  # between two looks whether a process has ended, at most
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_servers: list["_ForkServer"] = []  # of this process: one or none


def begin_fork_server(imports: Mapping[str, Sequence[str]], *, here: str = "") -> None:
    """
    Fork the server off this process, which has no other threads yet. The server imports these modules, by program,
    while this process continues. No fork imports from the working folder, which is `here`.

    In each fork of it this raises SystemExit, at the end of the program.
    """
    if sys.platform != "linux":
        return
    # Where the launcher of this process ignores the signal, the kernel keeps the exit status of no child.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if pid := os.fork():
        theirs.close()
        _servers[:] = [_ForkServer(pid, ours, frozenset(imports))]
        atexit.register(_servers[0].end)
        return
    ours.close()
    _servers.clear()
    try:
        os.setsid()  # Ctrl-C is for the parent
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        _show([NAME])
        os.environ.update(ONE_THREAD)
        for module in [module for modules in imports.values() for module in modules]:
            importlib.import_module(module)
        gc.freeze()
        theirs.send(READY)
        request, descriptors = _served(theirs)
    except BaseException:  # the frames above are those of another program
        os._exit(1)
    _run(request, descriptors, here)


def fork(
    program: str, arguments: Sequence[str], variables: Mapping[str, str], channel: int, output: int, *source: int
) -> "Fork | None":
    """
    The program as a fork that writes to the descriptor `output`, and reads `source` or nothing; None where there is no
    fork.

    `variables` is its whole environment. A program that needs the imports waits for them.
    """
    request = json.dumps({"program": program, "arguments": list(arguments), "variables": dict(variables)}).encode()
    pid = _servers[0].fork(program, request, [channel, output, *source]) if _servers else None
    return None if pid is None else Fork(pid)


class Fork:
    """A child that this process has adopted, with the part of subprocess.Popen that is needed."""

    stdout = None
    _status: int | None = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._lock = threading.RLock()  # a signal's handler may kill while its thread is in `poll`

    def poll(self) -> int | None:
        with self._lock:
            if self._status is None:
                try:
                    has_ended, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # another part of the process has taken the status
                    has_ended, status = self.pid, int(signal.SIGKILL)
                self._status = os.waitstatus_to_exitcode(status) if has_ended else None
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        end = math.inf if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while (status := self.poll()) is None:
            if (left := end - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            pause = min(2 * pause, left, POLL_SECONDS)
            time.sleep(pause)
        return status

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class _ForkServer:
    """The parent's handle on the fork server."""

    def __init__(self, pid: int, requests: socket.socket, programs: frozenset[str]) -> None:
        self._process, self._requests, self._programs = Fork(pid), requests, programs
        self._is_ready = False
        self._lock = threading.Lock()

    def fork(self, program: str, request: bytes, descriptors: list[int]) -> int | None:
        """The id of the fork; None where there is none. A program that needs the imports waits for them."""
        if program not in self._programs:
            return None
        with self._lock, contextlib.suppress(OSError):  # it has ended, or the request is too large
            self._is_ready = self._is_ready or self._requests.recv(len(READY)) == READY
            if self._is_ready and _prctl(SET_CHILD_SUBREAPER, 1):
                try:
                    socket.send_fds(self._requests, [request], descriptors)
                    return int(self._requests.recv(16) or 0) or None
                finally:
                    _prctl(SET_CHILD_SUBREAPER, 0)
        return None

    def end(self) -> None:
        self._requests.close()
        self._process.kill()
        self._process.wait()


def _served(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """
    Serve. Returns in each fork alone: the request, and the descriptors of channel, output and input.

    The process between the server and the fork ends at once: so the kernel gives the fork to the process that has
    asked for it. The fork replies with its id when that has happened.
    """
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 3)
        if not request:
            os._exit(0)
        if between := os.fork():
            if os.waitpid(between, 0)[1]:  # there was no process left for the fork
                requests.send(NONE)
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        between = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.0002)
        requests.send(str(os.getpid()).encode())
        requests.close()
        return json.loads(request), descriptors


def _run(request: dict[str, Any], descriptors: list[int], here: str) -> None:
    """What an interpreter does before the first line of `python -P -m program`, and the program. Raises SystemExit."""
    program, variables = request["program"], request["variables"]
    os.setsid()
    channel, output, *given = descriptors
    source = given[0] if given else os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in ((source, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, number)
    os.close(source)
    os.close(output)
    lines: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "buffering": 1, "closefd": False}
    sys.stdout, sys.stderr = open(1, "w", **lines), open(2, "w", **lines)  # noqa: SIM115
    parent = variables[LAUNCHED].split()[0]
    os.environ.clear()
    os.environ.update(variables | {LAUNCHED: f"{parent} {channel}"})
    beside = filter(None, os.environ["PYTHONPATH"].split(os.pathsep))
    not_there = (here, sysconfig.get_path("scripts"))
    sys.path[:] = dict.fromkeys([*beside, *(place for place in sys.path if place not in not_there)])
    importlib.invalidate_caches()
    sys.modules.pop(program, None) if "." in program else None
    sys.argv = [program, *request["arguments"]]
    _show(sys.argv)
    _draw_anew()
    runpy.run_module(program, run_name="__main__", alter_sys=True)
    sys.exit()


def _draw_anew() -> None:
    """Have each fork draw other numbers; Python's module `random` does so by itself."""
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].seed()


def _show(words: Sequence[str]) -> None:
    """What ps, top and pgrep show of this process, as far as there is room."""
    _prctl(SET_NAME, words[0].encode())
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, size = int(fields[ARG_START]), int(fields[ARG_END]) - int(fields[ARG_START])
    if start and size > 0:
        text = "\0".join(words).encode(errors="surrogateescape")[: size - 1]
        ctypes.memmove(start, text.ljust(size, b"\0"), size)


def _prctl(option: int, value: int | bytes) -> bool:
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
