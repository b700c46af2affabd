"""
Starts programs in milliseconds: each is a fork of a process that has imported what takes seconds, torch above all.

A program that is started so runs its script or module from the first line to the interpreter's end, with arguments,
signals and output as if it had been started anew. What it lacks is the time of its imports. `python -m
tests.integration.fork_server` reads a request a line from its standard input, and writes a line when it is ready,
`[id, request, null, 0]` when a program has started and `[id, null, status, CPU seconds]` when it has ended.
"""

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any


def heed_signals() -> None:
    """In the child: signals are not ignored because the tests were started in the background."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Forked:
    """A program that the fork server has started; the part of subprocess.Popen that tests use."""

    def __init__(
        self, args: Sequence[str], log: Path, folder: Path, constants: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """`constants` are other values of numbers of the program: "package.module.NAME"."""
        self.args = args
        self.pid = _server().start(args, log, folder, constants)

    @property
    def returncode(self) -> int | None:
        return _server().ended.get(self.pid)

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        server = _server()
        with server.changed:
            if not server.changed.wait_for(lambda: self.pid in server.ended, timeout):
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return server.ended[self.pid]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class _ForkServer:
    """The process that forks, as its client sees it; it ends with this process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=heed_signals,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.ended: dict[int, int] = {}
        self.cpu_seconds = 0.0  # of programs that have ended
        self.programs: dict[str, list[float]] = {}  # by name: how many have started, CPU seconds
        self._names: dict[int, str] = {}  # by request
        self._costs: dict[int, list[float]] = {}  # by process
        self.changed = threading.Condition()
        self._started: dict[int, int] = {}  # by request
        self._requests = 0
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the fork server has failed"
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, args: Sequence[str], log: Path, folder: Path, constants: Mapping[str, float]) -> int:
        assert self.process.stdin is not None
        number = self._requests = self._requests + 1
        self._names[number] = Path(args[0]).name
        what = {"args": args, "log": str(log), "folder": str(folder), "variables": dict(os.environ)}
        what["constants"] = dict(constants)
        print(json.dumps({"number": number} | what), file=self.process.stdin, flush=True)
        with self.changed:
            assert self.changed.wait_for(lambda: number in self._started, timeout=60), "the fork server does not answer"
            return self._started.pop(number)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            process, number, status, seconds = json.loads(line)
            with self.changed:
                if status is None:
                    self.ended.pop(process, None)  # an older program may have had its id
                    self._started[number] = process
                    self._costs[process] = self.programs.setdefault(self._names.pop(number), [0.0, 0.0])
                    self._costs[process][0] += 1
                else:
                    self.ended[process] = status
                    self.cpu_seconds += seconds
                    self._costs[process][1] += seconds
                self.changed.notify_all()


_servers: list[_ForkServer] = []


def started_servers() -> Sequence[_ForkServer]:
    """The one of this process, or none."""
    return _servers


def _server() -> _ForkServer:
    if not _servers:
        _servers.append(_ForkServer())
    return _servers[0]


def _serve() -> dict[str, Any]:
    """Returns in each child alone, with its request."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    print("ready", file=answers)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    requests = b""
    while True:
        ready, _, _ = select.select([0, read], [], [])
        if read in ready:
            os.read(read, 4096)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.wait4(-1, os.WNOHANG))[0]:
                    seconds = ended[2].ru_utime + ended[2].ru_stime
                    print(json.dumps([ended[0], None, os.waitstatus_to_exitcode(ended[1]), seconds]), file=answers)
        if 0 not in ready:
            continue
        if not (part := os.read(0, 2**16)):
            sys.exit()
        *lines, requests = (requests + part).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if process := os.fork():
                print(json.dumps([process, request["number"], None, 0]), file=answers)
                continue
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(nothing, 0)
            answers.close()
            for descriptor in (nothing, read, write):
                os.close(descriptor)
            return dict(request)


def _run(request: dict[str, Any]) -> None:
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    for place, value in request["constants"].items():
        module, _, name = place.rpartition(".")
        assert type(getattr(importlib.import_module(module), name)) is type(value), place
        setattr(sys.modules[module], name, value)
    name, sys.argv = request["args"][0], request["args"]
    sys.path[0] = os.path.dirname(name) or request["folder"]
    if os.path.isabs(name):
        runpy.run_path(name, run_name="__main__")
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    import gymnasium.envs.classic_control  # noqa: F401

    import ps_ctl.plots  # noqa: F401
    import ps_server.serving  # noqa: F401
    import ps_web.cli  # noqa: F401
    import rl_agent.environments.any_gymnasium  # noqa: F401
    import rl_cluster.cli  # noqa: F401
    import rl_eval.scores  # noqa: F401
    import rl_worker.joining  # noqa: F401

    _run(_serve())
