"""
Updates of SAC by a worker's own loop, on remembered steps of Hopper: a process that is measured.

    python -m benchmarks.dear.our_update update|gradient

`gradient`: a batch is drawn, its loss and gradient are computed. `update`: the server's optimizer is applied, too, the
network gets the new weights, and the target critics follow; all in this process.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from msgspec import structs
from torch import Tensor

from benchmarks.command_loop import serve_commands
from benchmarks.learning.simulated_run import ParametersInTurn, SimulatedRun
from ps_client.shell.newest import Newest
from ps_common.program.resources import flush_denormals, keep_freed_memory
from ps_common.settings.run_files import load_preset
from ps_common.settings.run_spec import Budget
from rl_agent.agent import build_agent, collector_for
from rl_agent.algorithms.sac import Sac
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_worker.training import Learner, Pushed, Reporter

PRESET = "hopper-sac"
STEPS = 10_000  # that are remembered


class Unmoved(ParametersInTurn):
    """Pushes are dropped: the weights stay as they are."""

    def push_pull(
        self, gradient: Tensor | None, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()
    ) -> Newest:
        return replace(computed_on, weights=None)


def updates(kind: str) -> Iterator[Pushed]:
    """One after another, without end."""
    spec = structs.replace(load_preset(PRESET), seed=1, budget=Budget())
    environments = make_environments(spec.environment, count=1)
    algorithm = build_agent(spec, environments, device=torch.device("cpu"), seed=1)
    assert isinstance(algorithm, Sac)
    network, collector = FlatNetwork(algorithm.network), collector_for(algorithm, environments, seed=1)
    algorithm.begin_unroll(0)
    for _ in range(STEPS // algorithm.unroll_length):
        algorithm.replay.remember(trajectory := collector.collect())
    algorithm.begin_unroll(STEPS)
    simulated = SimulatedRun(spec)
    simulated.run.seed(network.schema, network.weights)
    kinds = {"update": ParametersInTurn, "gradient": Unmoved}
    parameters = kinds[kind](simulated, 0, network.schema, environments=1)
    learner = Learner(parameters, network, algorithm, Reporter(parameters, time.monotonic))
    newest = learner.load(parameters.pull())
    while True:
        for pushed in learner.learn(trajectory, newest):
            newest = pushed.newest
            yield pushed


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()
    flush_denormals()
    endless = updates(sys.argv[1])

    def once() -> None:
        next(endless)

    serve_commands(once)
