"""
Baselines that a score must beat: random play, and each action held all the time.

A policy with a share ε of random actions is compared with held actions that have the same share. Real-valued and
combined actions have random play alone: holding one of them is no natural policy.
"""

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from ps_common.settings.run_spec import Environment
from rl_agent.algorithms.action_values import epsilon_greedy
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import closing, make_environments
from rl_agent.environments.spaces import DiscreteActions
from rl_agent.networks.packed_parts import part_of
from rl_agent.networks.policies import FORBIDDEN
from rl_agent.rollouts import Decision, State
from rl_eval.games import Baseline, play, summary
from rl_eval.player import Plays

HELD_GAMES = 30  # a held action has hardly more different games without sticky actions
RANDOM_GAMES = 100  # their scores are spread widely: 20 to 700 in Space Invaders
ENVIRONMENTS = 10  # in lockstep
RANDOM_PLAY = "random play"


class HeldAction:
    """One action all the time, but for a share ε of random ones. Where a mask forbids it, another one is taken."""

    def __init__(self, environments: Environments, action: int, *, epsilon: float, seed: int) -> None:
        assert isinstance(environments.actions, DiscreteActions), "only these are held"
        self._values = torch.zeros(environments.actions.count)
        self._values[action] = 1.0
        self._mask = environments.observations.mask
        self._epsilon = epsilon
        self._random = torch.Generator().manual_seed(seed)

    def initial_state(self, count: int) -> State:
        return ()

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        values = self._values.expand(len(observations), -1)
        if self._mask is not None:
            values = values.masked_fill(part_of(observations, self._mask) == 0, FORBIDDEN)
        epsilons = torch.full((len(observations),), self._epsilon)
        return Decision(epsilon_greedy(values, epsilons, self._random), (), {})


class RandomPlay:
    """Any action that is allowed, each as likely as the others."""

    def __init__(self, environments: Environments, *, seed: int) -> None:
        self._actions, self._mask = environments.actions, environments.observations.mask
        self._random = np.random.default_rng(seed)

    def initial_state(self, count: int) -> State:
        return ()

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        allowed = None if self._mask is None else self._mask.of(observations.numpy()).astype(np.bool_)
        return Decision(torch.from_numpy(self._actions.sample(self._random, len(observations), allowed)), (), {})


def measure_baselines(settings: Environment, *, epsilon: float, seed: int) -> list[Baseline]:
    """Random play and each held action, the best first; held actions have a share `epsilon` of random ones."""
    with closing(make_environments(settings, count=ENVIRONMENTS)) as environments:
        actors: list[tuple[str, Plays]] = [(RANDOM_PLAY, RandomPlay(environments, seed=seed))]
        if isinstance(environments.actions, DiscreteActions):
            names = environments.actions.names or tuple(map(str, range(environments.actions.count)))
            for action, name in enumerate(names):
                actors.append((name, HeldAction(environments, action, epsilon=epsilon, seed=seed)))
        # A held action may never end a game: Breakout's wait for a FIRE that does not come, for half an hour of play.
        console = Console(stderr=True)
        shown = track(actors, "baselines", console=console, transient=True, disable=not console.is_terminal)
        measured = [
            _measured(name, actor, environments, RANDOM_GAMES if name == RANDOM_PLAY else HELD_GAMES, seed)
            for name, actor in shown
        ]
    return sorted(measured, key=lambda baseline: baseline.mean, reverse=True)


def _measured(name: str, actor: Plays, environments: Environments, count: int, seed: int) -> Baseline:
    games = list(play(actor, environments, episodes=count, greedy=False, seed=seed))
    result = summary(games, environment="", greedy=False)
    return Baseline(
        name=name, mean=result.mean, low=result.low, high=result.high, episodes=count, distinct=result.distinct
    )
