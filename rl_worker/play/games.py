"""
Full games: how an agent plays them, their scores, and how their actions are replayed without the agent.

Each environment draws its random numbers from its own seed, so one environment's games can be replayed alone.
"""

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.environments.interface import Environments
from rl_worker.environments.spaces import Actions, ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions
from rl_worker.play.player import Player

Action = int | list[int | float]  # of DiscreteActions, MultiDiscreteActions, BoxActions


class Game(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One full game."""

    environment: int  # the number of the environment that played it
    score: float  # true, unclipped
    actions: list[Action]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the games. `low` and `high` bound the mean with 95 % confidence (normal approximation)."""

    environment: str
    episodes: int
    greedy: bool
    mean: float
    std: float
    low: float
    high: float
    scores: list[float]


def summary(scores: Sequence[float], *, environment: str, greedy: bool) -> Result:
    """Mean, standard deviation and confidence interval of scores."""
    mean = float(np.mean(scores))
    std = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
    margin = 1.96 * std / math.sqrt(len(scores))
    return Result(
        environment=environment,
        episodes=len(scores),
        greedy=greedy,
        mean=mean,
        std=std,
        low=mean - margin,
        high=mean + margin,
        scores=list(scores),
    )


def shares(episodes: int, count: int) -> NDArray[np.int64]:
    """[count]: the number of games that each environment plays. Short games, which end first, would be too many."""
    share = np.full(count, episodes // count)
    share[: episodes % count] += 1
    return share


def play(agent: Algorithm, environments: Environments, *, episodes: int, greedy: bool, seed: int) -> Iterator[Game]:
    """`episodes` full games, as they end. Each environment plays its share of them."""
    share = shares(episodes, environments.count)
    returns = np.zeros(environments.count)
    actions: list[list[Action]] = [[] for _ in range(environments.count)]
    player = Player(agent, environments, greedy=greedy, seed=seed)
    while share.any():
        decision = player.decide()
        for taken, action in zip(actions, decision.actions.tolist(), strict=True):
            taken.append(action)
        stepped = player.take(decision)
        returns += stepped.rewards
        for row in np.flatnonzero(stepped.terminated | stepped.truncated):
            if share[row]:
                share[row] -= 1
                yield Game(environment=int(row), score=float(returns[row]), actions=actions[row])
            returns[row], actions[row] = 0.0, []


class Replay:
    """Games of one environment, played again by their actions, in their order."""

    def __init__(self, environments: Environments, *, seed: int) -> None:
        """`seed` is that of the one environment."""
        assert environments.count == 1, "environments are replayed one by one"
        self.environments = environments
        environments.reset(seed)

    def steps(self, actions: Sequence[Action]) -> Iterator[tuple[float, bool]]:
        """Take the actions of one game; the score after each, and whether the game has ended, which is the last."""
        score, ended = 0.0, False
        for action in actions:
            stepped = self.environments.step(self._array(action))
            score += float(stepped.rewards[0])
            ended = bool(stepped.terminated[0] or stepped.truncated[0])
            yield score, ended
            if ended:
                return

    def refusal(self, actions: Sequence[Action]) -> str:
        """A sentence that names the first action that the environment does not have; otherwise ""."""
        space = self.environments.actions
        for number, action in enumerate(actions, start=1):
            if not _is_in(space, action):
                return f"its action {number} is {action}, which this environment does not have"
        return ""

    def _array(self, action: Action) -> Actions:
        return np.array([action], np.float32 if isinstance(self.environments.actions, BoxActions) else np.int64)


def _is_in(space: ActionSpace, action: Action) -> bool:
    match space:
        case DiscreteActions():
            return isinstance(action, int) and 0 <= action < space.count
        case MultiDiscreteActions():
            if not isinstance(action, list) or len(action) != len(space.counts):
                return False
            pairs = zip(action, space.counts, strict=True)
            return all(isinstance(choice, int) and 0 <= choice < count for choice, count in pairs)
        case BoxActions():
            return isinstance(action, list) and len(action) == len(space.low)
