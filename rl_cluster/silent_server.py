"""
A server that stands still, though its process runs: a disk that hangs, a deadlock, SIGSTOP.

Its silence is reported after some seconds. When it lasts, the process is ended and another one is started from the
newest checkpoint, as for other children. A process that somebody has stopped is reported and left alone.
"""

import time

from ps_common.program.child_processes import Child
from ps_common.program.supervision import SupervisedProcess

NOTED_SECONDS = 10.0  # without a reply, until that is reported
HUNG_SECONDS = 1.0  # for a hung server to leave: it may not react to SIGTERM


class SilentServer:
    """How long one server has not replied, and what follows from that."""

    def __init__(self, server: SupervisedProcess, *, stall_seconds: float, start_seconds: float) -> None:
        """A server that has replied before may be silent for `stall_seconds`, one that starts for `start_seconds`."""
        self._server = server
        self._stall_seconds, self._start_seconds = stall_seconds, start_seconds
        self._heard: tuple[Child, float] | None = None  # the child that has replied last, and when
        self._is_noted = False

    def has_replied(self) -> None:
        """The server has replied just now."""
        self._heard, self._is_noted = (self._server.child, time.monotonic()), False

    def look(self) -> tuple[str, str]:
        """The server has not replied. Returns a line to show, and how it died, where there is one; "" else."""
        child, name = self._server.child, self._server.name
        if child.exit_status is not None:
            return "", ""  # the supervision reports how it died
        has_begun = self._heard is not None and self._heard[0] is child
        silent = time.monotonic() - self._heard[1] if self._heard is not None and has_begun else child.age_seconds
        is_paused = child.is_paused
        if silent > (self._stall_seconds if has_begun else self._start_seconds) and not is_paused:
            child.end(within_seconds=HUNG_SECONDS)
            if child.exit_status is not None:
                return "", self._server.replace(f"it hangs: no reply for {silent:.0f} s, though its process runs")
        if silent < NOTED_SECONDS or not has_begun or self._is_noted:
            return "", ""
        self._is_noted = True
        runs = f"its process {child.pid} is stopped: kill -CONT {child.pid} lets it go on"
        if not is_paused:
            runs = f"though its process {child.pid} runs; after {self._stall_seconds:.0f} s it is started again"
        return f"{name} has not replied for {silent:.0f} s, {runs} (its log: {child.log})", ""
