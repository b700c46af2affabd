"""Real programs as child processes: started on ports that the system hands out, always ended, by their ids."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import torch

from ps_common.program.fork_server import NAME
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.status import Status
from ps_common.sockets import request
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import ask
from tests.integration.fork_server import Forked, heed_signals

DEADLINE_SECONDS = 60.0


class Program:
    """A running program and what it has printed: an installed script, one by its path, or a module of the tests."""

    def __init__(
        self,
        name: str,
        *flags: str,
        log: Path,
        prefix: tuple[str, ...] = (),
        folder: Path | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
        import_anew: bool = False,
        constants: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """
        It works in `folder`, or in that of the tests; `variables` of its environment stand above theirs.

        With a prefix, with variables or with `import_anew` it is a new process; else a fork, which starts in
        milliseconds, and may have other `constants`: a shorter wait, for example.
        """
        self.log = log
        log.touch()
        is_script = (script := Path(sys.executable).parent / name).exists()
        self.process: Forked | subprocess.Popen[bytes]
        if not (prefix or variables or import_anew or name == "python"):
            self.process = Forked([str(script) if is_script else name, *flags], log, folder or Path.cwd(), constants)
            return
        assert not constants, "a new process has its own"
        program = [str(script)] if is_script else [sys.executable, "-m", name]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*prefix, *program, *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                preexec_fn=heed_signals,
                env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
            )

    @property
    def output(self) -> str:
        """The whole lines that it has printed: of one that is being written, a number may have half its digits."""
        lines, newline, _ = self.log.read_text(errors="replace").rpartition("\n")
        return lines + newline

    def wait(self, within_seconds: float = DEADLINE_SECONDS) -> int:
        """Its exit status; fails the test with its output when it does not exit in time."""
        try:
            return self.process.wait(within_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.process.args!r} did not exit in {within_seconds} s:\n{self.output}") from None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As kill −9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Programs:
    """Starts programs for one test, and ends all of them after it."""

    def __init__(self, folder: Path, *, import_anew: bool = False) -> None:
        self.folder = folder
        self.import_anew = import_anew
        self.started: list[Program] = []

    def start(self, name: str, *flags: str, **how: Any) -> Program:
        """`how`: further arguments of Program."""
        log = self.folder / f"{len(self.started)}-{Path(name).name}.log"
        program = Program(name, *flags, log=log, import_anew=self.import_anew, **how)
        self.started.append(program)
        return program

    def start_server(
        self,
        *flags: str,
        host: str = "127.0.0.1",
        port: int = 0,
        run_dir: Path | None = None,
        prefix: tuple[str, ...] = (),
    ) -> tuple[Program, str]:
        """A ps-server, on loopback unless told, and its HOST:PORT."""
        folder = run_dir or self.folder / "run"
        where = [] if "--resume" in flags or "--run-dir" in flags else ["--run-dir", str(folder)]
        (folder / "endpoint").unlink(missing_ok=True)
        program = self.start("ps-server", "--host", host, "--port", str(port), *where, *flags, prefix=prefix)
        endpoint = folder / "endpoint"
        wait_for(lambda: endpoint.exists() and endpoint.read_text().strip(), program=program)
        wait_for(lambda: "ps-server listens on" in program.output, program=program)  # a thread of its own writes that
        return program, endpoint.read_text().strip()

    def end_all(self) -> None:
        for program in self.started:
            program.kill()


@contextmanager
def programs_in(folder: Path, *, import_anew: bool = False) -> Iterator[Programs]:
    """Programs that end with the block, and when SIGTERM ends this process: it is an interrupt here, as Ctrl-C is."""
    programs = Programs(folder, import_anew=import_anew)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield programs
    finally:
        programs.end_all()
        signal.signal(signal.SIGTERM, before)


def children_of(program: Program) -> list[psutil.Process]:
    """The programs that it has started and that run."""
    children = psutil.Process(program.process.pid).children()
    return [child for child in children if child.name() != NAME and child.status() != psutil.STATUS_ZOMBIE]


def free_ports(count: int) -> list[int]:
    """Ports that are free now: each shard has to know those of the others before it starts."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def children_with(word: str, pid: int) -> list[psutil.Process]:
    """The processes below this one with the word on their command line; without those that have just ended."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # of which a zombie is a kind
            found += [child] if word in child.cmdline() else []
    return found


def wait_for(
    condition: Callable[[], Any], *, within_seconds: float = DEADLINE_SECONDS, program: Program | None = None
) -> Any:
    """The first true value of the condition; fails when there is none in time, or the program has exited."""
    deadline = time.monotonic() + within_seconds
    while not (value := condition()):
        story = program.output if program else ""
        assert time.monotonic() < deadline, f"not within {within_seconds} s. {story}"
        if program is not None:
            assert program.process.poll() is None, f"the program has exited. {story}"
        threading.Event().wait(0.02)
    return value


def weights_of(endpoint: str, size: int, keys: ClientKeys | None = None) -> torch.Tensor:
    """The newest weights [size] of a server."""
    reply, vector = ask(endpoint, messages.Pull(request=1), timeout_seconds=30, keys=keys)
    assert isinstance(reply, messages.Weights)
    return CODECS[reply.codec].decode(vector, size)


def status_of(endpoint: str, keys: ClientKeys | None = None) -> Status:
    """The status that a server gives of its run. Raises ServerUnreachable when it says nothing for a while."""
    return request.status_of(endpoint, timeout_seconds=10, keys=keys).status
