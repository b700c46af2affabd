"""
Many environments are one batch: a GPU is fast with few, large calls. (No test has a GPU: these count calls on the CPU.)
"""

import pytest
import torch
from torch import Tensor, nn

from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent, collector_for
from rl_agent.environments.make import make_environments

ENVS, UNROLL = 24, 5
RUN = with_settings(RunSpec(), {"environment.id": "CartPole-v1"}, source="test")


@pytest.mark.parametrize("method", ["a3c", "n_step_q"])
def test_each_step_of_all_environments_is_one_call_of_the_network(method: str) -> None:
    run = with_settings(RUN, {"algorithm.name": method}, source="test")
    run = with_settings(run, {"algorithm.unroll_length": UNROLL}, source="test")
    environments = make_environments(run.environment, count=ENVS, with_screen=False)
    algorithm = build_agent(run, environments, device=torch.device("cpu"), seed=0)
    sizes: list[int] = []

    def called(network: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        sizes.append(inputs[0].shape[:-1].numel())

    algorithm.network.register_forward_pre_hook(called)
    collector = collector_for(algorithm, environments, seed=0)
    trajectory = collector.collect()
    assert sizes == [ENVS] * UNROLL
    sizes.clear()
    (batch,) = algorithm.batches(trajectory)
    algorithm.loss(batch)
    assert sum(sizes) >= ENVS * UNROLL
    assert len(sizes) <= 3, "the unroll, and what follows it: few calls, whatever the number of environments"
    environments.close()
