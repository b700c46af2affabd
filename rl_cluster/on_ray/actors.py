"""
The actors of a run: one for the server, one for each worker. Ray places them, and starts them again on other nodes.

They are the control plane alone: an actor keeps its program running and tells where the server listens. Gradients and
weights go over the programs' own sockets. Each actor ends itself when its program has ended in order.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError

from ps_common.errors import PsRlError
from rl_cluster.on_ray.processes import KeptRunning, RunPlan, ServerProcess, WorkerProcess

POLL_SECONDS = 0.5  # between two looks at a program
LINGER_SECONDS = 15.0  # of an actor whose program is over: watchers of the run read the end of it
REPLY_SECONDS = 10.0


def in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def keep(program: KeptRunning, each_time: Callable[[], None] = lambda: None) -> None:
    """Keep a program running until it is over, then end this actor for good."""
    pause = threading.Event()
    while program.poll(now=time.monotonic()):
        each_time()
        pause.wait(POLL_SECONDS)
    pause.wait(LINGER_SECONDS)
    end_this_actor()


def end_this_actor() -> None:
    """Ray does not start it again."""
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class ServerActor:
    """Keeps the run's server running on the node that Ray has chosen."""

    def __init__(self, plan: RunPlan) -> None:
        again = ray.get_runtime_context().was_current_actor_reconstructed
        self._failure = ""
        self._ending = ""
        try:
            self._server = ServerProcess(plan, host=ray.util.get_node_ip_address(), has_run=again, now=time.monotonic())
        except PsRlError as error:
            self._failure = str(error)
            return
        in_background(lambda: keep(self._server.program))

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
        program = self._server.program
        status = None if program.is_over or program.failure else self._server.status()
        state = {"failure": program.failure, "over": program.is_over}
        return state if status is None else state | {"status": msgspec.json.encode(status)}

    def stop_run(self, reason: str) -> None:
        """End the run in order."""
        self._server.stop_run(reason)


class WorkerActor:
    """Keeps one worker running on the node that Ray has chosen."""

    def __init__(self, number: int, run_folder: str, server: Any, flags: list[str]) -> None:
        self._ask_server = server
        keys = ray.get(server.worker_keys.remote())
        self._worker = WorkerProcess(number, Path(run_folder), keys, flags, now=time.monotonic())
        in_background(lambda: keep(self._worker.program, self._follow))

    def leave(self) -> None:
        """Have the worker leave in order."""
        self._worker.program.end()

    def _follow(self) -> None:
        """Tell the worker where the server listens now, if Ray knows."""
        try:
            self._worker.follow(ray.get(self._ask_server.address.remote(), timeout=REPLY_SECONDS))
        except RayError:  # the server's actor is being started again, or is gone for good
            return
