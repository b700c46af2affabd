"""
The trial of a custom network or algorithm before anything is started for its run: one short unroll, one gradient.

Every member that training uses is used once, and errors name the return value of a wrong torso or algorithm.
"""

from typing import Any

import torch

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent
from rl_agent.algorithms.algorithm import Algorithm, Loss
from rl_agent.environments.interface import Environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.rollouts import RolloutCollector

MOST_STEPS = 32  # of the trial's unroll
SEED = 0


def check_custom_agent(run: RunSpec, environments: Environments, *, flag: str) -> None:
    """Raises SettingsError that begins with the flag, or what the custom code raises."""
    device = torch.device("cpu")
    agent = build_agent(run, environments, device=device, seed=SEED)
    network = FlatNetwork(agent.network)
    buffers = {name: buffer.clone() for name, buffer in agent.network.named_buffers()}
    agent.begin_unroll(0)
    collector = RolloutCollector(
        environments,
        agent,
        unroll_length=min(agent.unroll_length, MOST_STEPS),
        discount=agent.discount,
        seed=SEED,
        commits_next_action=agent.commits_next_action,
    )
    batch = _first_batch(agent, collector, flag)
    with network.learning():
        loss = agent.loss(batch)
        if not (isinstance(loss, Loss) and loss.total.dim() == 0 and loss.total.requires_grad):
            raise SettingsError(
                f"{flag}: its loss must be a Loss whose total is one number with a gradient, not {loss}"
            )
        gradient, _ = network.gradient_of(loss.total, clip=agent.gradient_clip)
    if not torch.isfinite(gradient).all():
        raise SettingsError(f"{flag}: its first gradient has NaN or Inf in it")
    for name, buffer in agent.network.named_buffers():
        if name not in buffers or not torch.equal(buffer, buffers[name]):
            raise SettingsError(
                f"{flag}: its buffer {name} changes while it acts or learns, but the server changes parameters alone, "
                "and each pull brings the buffer's first value back"
            )


def _first_batch(agent: Algorithm, collector: RolloutCollector, flag: str) -> Any:
    for batch in agent.batches(collector.collect()):
        return batch
    raise SettingsError(f"{flag}: its batches() gave no batch of an unroll; each batch becomes one push")
