"""
From the run's settings to something that plays: the network that fits the environment, and the algorithm that acts with
it. Training and evaluation build their agents here, so that both see the same.
"""

from collections.abc import Callable

import numpy as np
import torch

from common import run_spec
from common.errors import SettingsError
from common.run_spec import RunSpec
from rl_worker.algorithms.a3c import A3C
from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.environments import DiscreteActions, Environments
from rl_worker.networks import policy_value_network

ALGORITHMS: dict[type, Callable[..., Algorithm]] = {run_spec.A3C: A3C}


def build_agent(run: RunSpec, environments: Environments, *, device: torch.device, seed: int) -> Algorithm:
    """
    The algorithm of the run, with a freshly initialised network on `device`; `seed` is for sampling actions.

    The network's first weights come from the run's own seed, so all workers of a run would seed it alike.
    Raises SettingsError when the settings do not fit the environment.
    """
    if run.seed is not None:
        torch.manual_seed(run.seed)
    if not isinstance(environments.actions, DiscreteActions):
        raise SettingsError(f"--algorithm a3c: {run.environment.id} has continuous actions, which it cannot take")
    network = policy_value_network(
        run.network,
        environments.observation_shape,
        pixels=environments.observation_dtype == np.uint8,
        actions=environments.actions.count,
    )
    return ALGORITHMS[type(run.algorithm)](network.to(device), run.algorithm, device=device, seed=seed)
