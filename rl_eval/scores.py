"""
Scores: the baselines that one must beat, which are random play and each action held all the time, and the words in
which `rl-eval` and model cards tell a score: how it was played, its interval, how many games were distinct.

A policy with a share ε of random actions is compared with held actions that have the same share. Real-valued and
combined actions only have random play: nobody would hold one of them.
"""

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from ps_common.settings.run_spec import Environment
from rl_agent.algorithms.action_values import epsilon_greedy
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import closing, make_environments
from rl_agent.environments.spaces import DiscreteActions
from rl_agent.networks.custom_network import part_of
from rl_agent.networks.networks import only_allowed
from rl_agent.rollouts import Actor, Decision, State
from rl_eval.games import MOST_GAME_STEPS, Baseline, Result, play, summary

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
            values = only_allowed(values, part_of(observations, self._mask))
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


def measure_baselines(
    settings: Environment, *, epsilon: float, seed: int, most_steps: int = MOST_GAME_STEPS
) -> list[Baseline]:
    """Random play and each held action, the best first; held actions have a share `epsilon` of random ones."""
    with closing(make_environments(settings, count=ENVIRONMENTS)) as environments:
        actors: list[tuple[str, Actor]] = [(RANDOM_PLAY, RandomPlay(environments, seed=seed))]
        if isinstance(environments.actions, DiscreteActions):
            names = environments.actions.names or tuple(map(str, range(environments.actions.count)))
            for action, name in enumerate(names):
                actors.append((name, HeldAction(environments, action, epsilon=epsilon, seed=seed)))
        # A held action may end no game: Breakout's wait for a FIRE that does not come, for half an hour of play.
        console = Console(stderr=True)
        shown = track(actors, "baselines", console=console, transient=True, disable=not console.is_terminal)
        measured = [
            _measured(name, actor, environments, epsilon=epsilon, seed=seed, most_steps=most_steps)
            for name, actor in shown
        ]
    return sorted(measured, key=lambda baseline: baseline.mean, reverse=True)


def _measured(
    name: str, actor: Actor, environments: Environments, *, epsilon: float, seed: int, most_steps: int
) -> Baseline:
    is_random = name == RANDOM_PLAY
    count = RANDOM_GAMES if is_random else HELD_GAMES
    games = play(
        actor, environments, episodes=count, greedy=False, seed=seed, most_steps=most_steps, keeps_actions=False
    )
    result = summary(list(games), environment="", greedy=False, epsilon=None if is_random else epsilon)
    return Baseline(
        name=name, mean=result.mean, low=result.low, high=result.high, episodes=count, distinct=result.distinct
    )


def print_result(result: Result) -> None:
    """Print the score, and a table with the baselines if they were measured."""
    print(
        f"{result.environment}: mean {result.mean:.2f}{_interval(result)}, std {result.std:.2f}, "
        f"of {result.episodes} full games, {actions_of(result)}{copies_in(result)}"
    )
    for name, value in result.metrics.items():
        print(f"  {name}: mean {value:.2f}")
    if result.failed:
        times = "a game" if result.failed == 1 else f"{result.failed} games"
        print(f"  {times} of an environment that failed did not count, and another was played for each")
    if not result.baselines:
        return
    table = Table("", "mean", "95 %", "games", "distinct", box=SIMPLE_HEAD, pad_edge=False)
    for name, row in scores_beside(result):
        table.add_row(name, f"{row.mean:.2f}", interval_of(row), str(row.episodes), str(row.distinct))
    Console(highlight=False).print(table)


def scores_beside(result: Result) -> list[tuple[str, Result | Baseline]]:
    """The policy and the baselines by name, the best first."""
    rows: list[tuple[str, Result | Baseline]] = [("this policy", result)]
    rows += [(baseline.name, baseline) for baseline in result.baselines]
    return sorted(rows, key=lambda row: row[1].mean, reverse=True)


def actions_of(result: Result) -> str:
    """How the policy chose its actions."""
    if result.greedy:
        return "greedy actions"
    return "sampled actions" if result.epsilon is None else f"ε-greedy actions (ε {result.epsilon:g})"


def copies_in(result: Result) -> str:
    """A clause on copies among the games; "" if there are none."""
    if result.distinct == result.episodes:
        return ""
    if result.draws_actions or result.low is None:
        return f"; {result.distinct} of them distinct"
    return f"; only {result.distinct} of them distinct, the others copies: the interval is that of the distinct ones"


def interval_of(row: Result | Baseline) -> str:
    """The interval, or "–" without one."""
    return "–" if row.low is None or row.high is None else f"{row.low:.2f} to {row.high:.2f}"


def _interval(result: Result) -> str:
    return "" if result.low is None else f" (95 % {interval_of(result)})"
