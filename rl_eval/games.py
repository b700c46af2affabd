"""
Full games: how an agent plays them, their scores, and how their actions are replayed without the agent.

Each environment draws its random numbers from its own seed, so one environment's games can be replayed alone. A game is
a copy of another if every observation, action and reward is the same: copies are no further evidence of a score.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from torch import Tensor

from ps_common.errors import PsRlError
from ps_common.protocol.names import Count
from rl_agent.environments.interface import Environments, Stepped, unsound_observation
from rl_agent.environments.spaces import Actions, ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions
from rl_agent.rollouts import Actor, Decision, State

LEAST_DISTINCT = 10  # games for an interval where some are copies: the approximation is of many
Action = int | list[int | float]  # of DiscreteActions, MultiDiscreteActions, BoxActions


class Game(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One full game."""

    environment: Count  # the number of the environment that played it
    score: float  # true, unclipped
    actions: list[Action]
    trace: str  # a hash of every observation, action and reward, in their order


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The score of a policy that needs no learning, in the same protocol."""

    name: str  # "random play", or the held action
    mean: float
    low: float | None  # of the 95 % interval; None: there is one game, or too few of the games were distinct
    high: float | None
    episodes: Count
    distinct: Count  # games that are no copies of others


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """
    Scores of the games. `low` and `high` bound the mean with 95 % confidence (normal approximation).

    The interval counts each distinct game once. It is None of one game, and where games were copies and few of them
    distinct.
    """

    environment: str
    episodes: int
    greedy: bool
    epsilon: float | None  # share of random actions; None: the method has none
    mean: float
    std: float
    low: float | None
    high: float | None
    distinct: int
    scores: list[float]
    baselines: list[Baseline] = []

    def __repr__(self) -> str:
        within = "" if self.low is None else f" (95 % {self.low:.2f} to {self.high:.2f})"
        return f"<Result in {self.environment}: mean {self.mean:.2f}{within} of {self.episodes} games>"


def summary(games: Sequence[Game], *, environment: str, greedy: bool, epsilon: float | None = None) -> Result:
    """Mean, standard deviation and confidence interval of the games' scores."""
    scores = [game.score for game in games]
    distinct = list({game.trace: game.score for game in games}.values())
    mean = float(np.mean(scores))
    margin = 1.96 * _deviation(distinct) / math.sqrt(len(distinct))
    has_interval = len(distinct) > 1 and (len(distinct) == len(games) or len(distinct) >= LEAST_DISTINCT)
    return Result(
        environment=environment,
        episodes=len(scores),
        greedy=greedy,
        epsilon=epsilon,
        mean=mean,
        std=_deviation(scores),
        low=mean - margin if has_interval else None,
        high=mean + margin if has_interval else None,
        distinct=len(distinct),
        scores=scores,
    )


def _deviation(scores: Sequence[float]) -> float:
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0


class Player:
    """An actor in environments, which are reset with `seed`."""

    def __init__(self, actor: Actor, environments: Environments, *, greedy: bool, seed: int) -> None:
        self._actor = actor
        self._environments = environments
        self._greedy = greedy
        self._steps = np.zeros(environments.count, np.int64)  # of the games in progress
        first = environments.reset(seed)
        if (unsound := unsound_observation(first, environments.observations)) is not None:
            raise PsRlError(f"{unsound.sentence(environments)}: it cannot be played")
        self._observations = torch.from_numpy(first)
        self._state = actor.initial_state(environments.count)
        self._starts = torch.ones(environments.count, dtype=torch.bool)

    @property
    def grounds(self) -> tuple[Tensor, State, Tensor]:
        """The grounds of the next decision: observations, recurrent state, and which observations begin a game."""
        return self._observations, self._state, self._starts

    def decide(self) -> Decision:
        """Actions for the observations of now."""
        return self._actor.act(*self.grounds, greedy=self._greedy)

    def take(self, decision: Decision) -> Stepped:
        """Step every environment once. Raises PsRlError for a number without which no game has a score."""
        stepped = self._environments.step(decision.actions.cpu().numpy())
        if stepped.unsound is not None:
            sentence = stepped.unsound.sentence(self._environments, steps=self._steps[stepped.unsound.row])
            raise PsRlError(f"{sentence}: the game has no score")
        ended = np.logical_or(stepped.terminated, stepped.truncated)
        self._steps = np.where(ended, 0, self._steps + 1)
        self._observations, self._state = torch.from_numpy(stepped.observations), decision.state
        self._starts = torch.from_numpy(ended)
        return stepped


def shares(episodes: int, count: int) -> NDArray[np.int64]:
    """[count]: the number of games that each environment plays. Short games, which end first, would be too many."""
    share = np.full(count, episodes // count)
    share[: episodes % count] += 1
    return share


def play(actor: Actor, environments: Environments, *, episodes: int, greedy: bool, seed: int) -> Iterator[Game]:
    """`episodes` full games, as they end. Each environment plays its share of them."""
    share = shares(episodes, environments.count)
    returns = np.zeros(environments.count)
    actions: list[list[Action]] = [[] for _ in range(environments.count)]
    traces = [xxhash.xxh3_64() for _ in range(environments.count)]
    player = Player(actor, environments, greedy=greedy, seed=seed)
    while share.any():
        seen, decision = player.grounds[0].numpy(), player.decide()
        for taken, action in zip(actions, decision.actions.tolist(), strict=True):
            taken.append(action)
        # The trace comes before the step, which may write the next observations into the same memory.
        add_to(traces, seen, decision.actions.cpu().numpy())
        stepped = player.take(decision)
        add_to(traces, stepped.rewards)
        returns += stepped.rewards
        for row in np.flatnonzero(stepped.terminated | stepped.truncated):
            if share[row]:
                share[row] -= 1
                trace = traces[row].hexdigest()
                yield Game(environment=int(row), score=float(returns[row]), actions=actions[row], trace=trace)
            returns[row], actions[row], traces[row] = 0.0, [], xxhash.xxh3_64()


def add_to(traces: Sequence[xxhash.xxh3_64], *arrays: NDArray[Any]) -> None:
    """Add the rows [B, ...] of each array to the traces of their games."""
    for array in arrays:
        for trace, row in zip(traces, np.ascontiguousarray(array), strict=True):
            trace.update(row.data if row.ndim else row.tobytes())


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
