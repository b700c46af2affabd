"""
The status of a server in a container: a program beside the server asks it, again and again.

A new `docker exec … ps-ctl status` for each question takes seconds on a busy machine. They would count as the engine's,
and slow its other containers down.
"""

import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from ps_common.protocol.status import Status

REPLY_SECONDS = 20.0  # of the program, which gives the server three; its first one includes the start of Python
END_SECONDS = 5.0

# The keys are where docker/role.sh has them.
PROGRAM = """
import os, sys
from pathlib import Path
import msgspec
from ps_common.errors import PsRlError
from ps_common.sockets.curve import CurveFlags
from ps_common.sockets.request import status_of
server, own = Path("/keys/server.key"), Path("/keys/worker.key_secret")
keys = CurveFlags(curve_server_key=server, curve_secret=own).client_keys() if server.exists() else None
for _ in sys.stdin:
    try:
        status = status_of("127.0.0.1:5555", timeout_seconds=3, keys=keys).status
    except PsRlError:
        status = None
    print(msgspec.json.encode(status).decode(), flush=True)
"""


class StatusInside:
    """The server of one container. `execute` is a command that runs a program in there, with its standard input."""

    def __init__(self, execute: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [*execute, "python", "-c", PROGRAM],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._replies = self._process.stdin, self._process.stdout

    def ask(self) -> Status | None:
        """None while the server does not reply. Raises EOFError when the program has ended, as with its container."""
        try:
            self._questions.write("\n")
        except BrokenPipeError:
            raise EOFError from None
        if not select.select([self._replies], [], [], REPLY_SECONDS)[0]:
            raise EOFError  # a reply that came later would be taken for that to the next question
        line = self._replies.readline()
        if not line:
            raise EOFError
        return msgspec.json.decode(line, type=Status | None)

    def end(self) -> None:
        """End the program in the container, by the end of its standard input, and the command that runs it."""
        with suppress(BrokenPipeError):  # of a question that found nobody
            self._questions.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._replies.close()
