"""
The actors of a run: one for the server, one for each worker. Ray places them, and starts them again on other nodes.

They are only the control plane: an actor keeps its program running. Workers find the server by the run folder, and
gradients and weights go over the programs' sockets. Each actor ends itself when its program has ended in order.
"""

import threading
from pathlib import Path
from typing import Any

import msgspec
import ray

from ps_common.errors import PsRlError
from ps_common.program.supervision import SupervisedProcess
from rl_cluster.failed_run import record_failure
from rl_cluster.on_ray.processes import RunPlan, ServerProcess, worker_process

POLL_SECONDS = 0.5  # between two looks at a program
LINGER_SECONDS = 15.0  # of an actor whose program is over: watchers of the run read the end of it
LEAVE_SECONDS = 10.0  # for a worker to leave in order


def keep(process: SupervisedProcess) -> str:
    """Keep a program running until it is over. Returns "", or why it is given up."""
    pause = threading.Event()
    try:
        while not process.child.is_over:
            process.look()
            pause.wait(POLL_SECONDS)
    except PsRlError as error:
        return str(error)
    return ""


def end_this_actor() -> None:
    """Ray does not start it again."""
    threading.Event().wait(LINGER_SECONDS)
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class ServerActor:
    """Keeps the run's server running on the node that Ray has chosen."""

    def __init__(self, plan: RunPlan) -> None:
        again = ray.get_runtime_context().was_current_actor_reconstructed
        self._failure = ""
        self._lines: list[str] = []  # on workers that were given up
        try:
            self._server = ServerProcess(plan, host=ray.util.get_node_ip_address(), has_run=again)
        except PsRlError as error:
            self._failure = str(error)
            return
        threading.Thread(target=self._keep, daemon=True).start()

    def worker_flags(self) -> list[str]:
        """The flags by which a worker finds the server. Raises PsRlError where it has failed."""
        if self._failure:
            raise PsRlError(self._failure)
        return self._server.worker_flags

    def give_up(self, worker: str, why: str) -> None:
        """A worker is not started again, for this reason: who watches the run is told."""
        self._lines.append(f"{worker} is given up: {why}")

    def state(self) -> dict[str, Any]:
        """
        Why the server failed, whether it is over, lines on workers that were given up, and its status as JSON; the
        status is missing without a reply.
        """
        if self._failure:
            return {"failure": self._failure, "over": False, "lines": self._lines}
        is_over = self._server.process.child.is_over
        status = None if is_over else self._server.status()
        state = {"failure": "", "over": is_over, "lines": self._lines}
        return state if status is None else state | {"status": msgspec.json.encode(status)}

    def stop_run(self, reason: str) -> None:
        """End the run in order, unless its server has failed."""
        if not self._failure:
            self._server.stop_run(reason)

    def _keep(self) -> None:
        """The thread."""
        self._failure = keep(self._server.process)
        if self._failure:
            record_failure(self._server.folder, self._failure)
        end_this_actor()


class WorkerActor:
    """Keeps one worker running on the node that Ray has chosen."""

    def __init__(self, number: int, run_folder: str, server: Any, flags: list[str]) -> None:
        found_by: list[str] = ray.get(server.worker_flags.remote())
        self._server = server
        self._worker = worker_process(number, Path(run_folder), [*found_by, *flags])
        threading.Thread(target=self._keep, daemon=True).start()

    def leave(self) -> None:
        """Have the worker leave in order."""
        self._worker.child.end(within_seconds=LEAVE_SECONDS)

    def _keep(self) -> None:
        """The thread."""
        if why := keep(self._worker):
            ray.get(self._server.give_up.remote(self._worker.name, why))
        end_this_actor()
