"""
The agent of a run: the network that fits the environment, and the algorithm that acts with it.

Training and evaluation build their agents here, so that both get the same.
"""

from collections.abc import Callable

import torch

from common.settings import run_spec
from common.settings.run_spec import RunSpec
from rl_worker.algorithms.a3c import A3C
from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.algorithms.n_step_q import NStepQ
from rl_worker.algorithms.one_step_q import OneStepQ
from rl_worker.algorithms.one_step_sarsa import OneStepSarsa
from rl_worker.environments.interface import Environments
from rl_worker.environments.spaces import DiscreteActions, Spaces
from rl_worker.networks.compatibility import check_algorithm
from rl_worker.networks.networks import ActionValueNetwork, PolicyValueNetwork
from rl_worker.networks.policies import policy_for
from rl_worker.networks.running_statistics import ReturnNormalization
from rl_worker.rollouts import RolloutCollector, Watcher

ACTION_VALUE_METHODS: dict[type, Callable[..., Algorithm]] = {
    run_spec.OneStepQSettings: OneStepQ,
    run_spec.OneStepSarsaSettings: OneStepSarsa,
    run_spec.NStepQSettings: NStepQ,
}


def build_agent(run: RunSpec, spaces: Spaces, *, device: torch.device, seed: int) -> Algorithm:
    """
    The algorithm of the run, with a freshly initialised network on `device`; `seed` is for sampling actions.

    The first weights come from the run's own seed, so that they are the same whichever worker seeds the run.
    Raises SettingsError when the settings do not fit the spaces.
    """
    if run.seed is not None:
        torch.manual_seed(run.seed)
    observations, actions = spaces.observations, spaces.actions
    settings = run.algorithm
    if isinstance(settings, run_spec.A3CSettings):
        policy = policy_for(actions, masked=observations.mask is not None)
        network = PolicyValueNetwork(run.network, observations, policy_parameters=policy.parameters)
        network.returns = _returns(settings)
        return A3C(network.to(device), policy, settings, device=device, seed=seed)
    check_algorithm(run, spaces)
    assert isinstance(actions, DiscreteActions), "checked above"
    values = ActionValueNetwork(run.network, observations, actions=actions.count)
    values.returns = _returns(settings)
    return ACTION_VALUE_METHODS[type(settings)](values.to(device), settings, device=device, seed=seed)


def _returns(settings: run_spec.Algorithm) -> ReturnNormalization | None:
    """The normalization of the rewards that the agent learns from."""
    if settings.reward_normalization == "none":
        return None
    return ReturnNormalization(discount=settings.discount, clip=settings.reward_clip)


def collector_for(
    algorithm: Algorithm, environments: Environments, *, seed: int, watcher: Watcher | None = None
) -> RolloutCollector:
    """A collector of unrolls for the algorithm, which also acts; the environments are reset with `seed`."""
    return RolloutCollector(
        environments,
        algorithm,
        unroll_length=algorithm.unroll_length,
        discount=algorithm.discount,
        seed=seed,
        commits_next_action=algorithm.commits_next_action,
        watcher=watcher,
    )
