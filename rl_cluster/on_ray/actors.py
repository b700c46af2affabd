"""
The actors of a run: one for the server, one for each worker. Ray places them, and starts them again on other nodes.

They are the control plane alone: an actor keeps its program running and tells where the server listens. Gradients and
weights go over the programs' own sockets. Each actor ends itself when its program has ended in order.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError

from ps_common.errors import PsRlError
from ps_common.program.supervision import SupervisedProcess
from rl_cluster.on_ray.processes import RunPlan, ServerProcess, WorkerProcess

POLL_SECONDS = 0.5  # between two looks at a program
LINGER_SECONDS = 15.0  # of an actor whose program is over: watchers of the run read the end of it
REPLY_SECONDS = 10.0
LEAVE_SECONDS = 10.0  # for a worker to leave in order


def keep(process: SupervisedProcess, each_time: Callable[[], None] = lambda: None) -> str:
    """Keep a program running until it is over. Returns "", or why it is given up."""
    pause = threading.Event()
    try:
        while not process.child.is_over:
            process.look()
            each_time()
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
        try:
            self._server = ServerProcess(plan, host=ray.util.get_node_ip_address(), has_run=again)
        except PsRlError as error:
            self._failure = str(error)
            return
        threading.Thread(target=self._keep, daemon=True).start()

    def address(self) -> str:
        """HOST:PORT; "" while the server does not listen."""
        return "" if self._failure else self._server.address

    def worker_keys(self) -> dict[str, bytes]:
        """The files that a worker needs to connect."""
        return self._server.worker_keys()

    def state(self) -> dict[str, Any]:
        """Why the server failed, whether it is over, and its status as JSON; the status is missing without a reply."""
        if self._failure:
            return {"failure": self._failure, "over": False}
        is_over = self._server.process.child.is_over
        status = None if is_over else self._server.status()
        state = {"failure": "", "over": is_over}
        return state if status is None else state | {"status": msgspec.json.encode(status)}

    def stop_run(self, reason: str) -> None:
        """End the run in order."""
        self._server.stop_run(reason)

    def _keep(self) -> None:
        """The thread."""
        self._failure = keep(self._server.process)
        end_this_actor()


class WorkerActor:
    """Keeps one worker running on the node that Ray has chosen."""

    def __init__(self, number: int, run_folder: str, server: Any, flags: list[str]) -> None:
        self._ask_server = server
        keys = ray.get(server.worker_keys.remote())
        self._worker = WorkerProcess(number, Path(run_folder), keys, flags)
        threading.Thread(target=self._keep, daemon=True).start()

    def leave(self) -> None:
        """Have the worker leave in order."""
        self._worker.process.child.end(within_seconds=LEAVE_SECONDS)

    def _keep(self) -> None:
        """The thread."""
        keep(self._worker.process, self._follow)
        end_this_actor()

    def _follow(self) -> None:
        """Tell the worker where the server listens now, if Ray knows."""
        try:
            self._worker.follow(ray.get(self._ask_server.address.remote(), timeout=REPLY_SECONDS))
        except RayError:  # the server's actor is being started again, or is gone for good
            return
