"""
The baseline of training: `training.py FLAGS…` is a worker that acts and learns with the settings of a run but without a
server, so its speed is the upper bound for a worker with one.
"""

import contextlib
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from benchmarks.command_loop import serve_commands
from ps_client.shell.newest import Newest
from ps_common.program.flags import parse_with_run
from ps_common.protocol.messages import Episode
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent, collector_for
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_worker.settings import WorkerSettings
from rl_worker.training import train


class UnrollEnded(Exception):
    """A gradient has been computed."""


class NoServer:
    """Parameters without a server: the weights never change, and a push ends the unroll."""

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        return Newest(epoch=1, version=1, global_steps=0, target_version=1, weights=None)

    def push_pull(
        self, gradient: Tensor | None, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()
    ) -> Newest:
        raise UnrollEnded

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        pass

    def finish(self) -> None:
        pass


def run_of(flags: Sequence[str]) -> RunSpec:
    """The run that a worker with these flags would propose."""
    return parse_with_run(WorkerSettings, ["--server", "none:1", *flags], prog="rl-worker").run


def steps_of_unroll(run: RunSpec) -> int:
    return run.environment.envs * run.algorithm.unroll_length


def worker_alone(flags: Sequence[str]) -> None:
    """Compute gradients and discard them."""
    run = run_of(flags)
    environments = make_environments(run.environment, count=run.environment.envs)
    algorithm = build_agent(run, environments, device=torch.device("cpu"), seed=0)
    network, collector = FlatNetwork(algorithm.network), collector_for(algorithm, environments, seed=0)

    def once() -> None:
        with contextlib.suppress(UnrollEnded):
            train(NoServer(), network, collector, algorithm)

    serve_commands(once)


if __name__ == "__main__":
    torch.set_num_threads(1)
    worker_alone(sys.argv[1:])
