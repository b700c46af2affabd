"""
Full games: how an agent plays them, and their scores.

Each environment draws its random numbers from its own seed, so one environment's games can be replayed without the
others. A game is a copy of another if every observation, action and reward is the same. Where actions are drawn at
random, a copy is a game like any other; where they are not, it may be the same game again, which is not further
evidence of a score.

No game is played for ever: `play` ends by its limit of steps, whatever an environment does.
"""

import logging
import math
import time
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
from rl_agent.environments.interface import Environments, Stepped
from rl_agent.rollouts import Actor, Decision, State

LEAST_GAMES = 5  # for an interval: of fewer games nobody can tell how far their mean lies from the true one
NORMAL = 1.959964  # the 97.5 % quantile of the normal distribution
MOST_GAME_STEPS = 27_000  # of games that have no limit of their own; as ALE's, which end after half an hour of play
MOST_ENVIRONMENTS = 16  # in lockstep
SILENT_SECONDS = 10.0  # without the end of a game, before that is reported

log = logging.getLogger("rl-eval")

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
    low: float | None  # of the 95 % interval; None: there is none, as in Result
    high: float | None
    episodes: Count
    distinct: Count  # games that are no copies of others


class Beside:
    """What is told of games beside their scores: the numbers of their environment, and how many games failed."""

    def __init__(self) -> None:
        self.failed = 0
        self._metrics: dict[str, list[float]] = {}

    def ended(self, stepped: Stepped, row: int) -> bool:
        """The game of this row has ended; whether it counts."""
        if stepped.failed is not None and stepped.failed[row]:
            self.failed += 1
            return False
        for name, value in stepped.metrics.get(row, {}).items():
            self._metrics.setdefault(name, []).append(value)
        return True

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each number over the games that have it."""
        return {name: float(np.mean(values)) for name, values in self._metrics.items()}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """
    Scores of the games. `low` and `high` bound the mean of all games that might be played, with 95 % confidence, by
    Student's t distribution, with a correction for continuity where scores have steps.

    Of a policy that draws no actions at random, the interval is that of as many games as were distinct. It is None of
    fewer than five games, and where all have one score: what the others would have been cannot be told then.
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
    metrics: dict[str, float] = {}  # means over the games of the numbers that the environment gives with each
    failed: int = 0  # games that an exception of the environment cut off, which were played again

    @property
    def draws_actions(self) -> bool:
        """Whether actions were drawn at random, so that a copy is a game of its own."""
        return not self.greedy and self.epsilon != 0

    def __repr__(self) -> str:
        within = "" if self.low is None else f" (95 % {self.low:.2f} to {self.high:.2f})"
        return f"<Result in {self.environment}: mean {self.mean:.2f}{within} of {self.episodes} games>"


def summary(
    games: Sequence[Game],
    *,
    environment: str,
    greedy: bool,
    epsilon: float | None = None,
    beside: Beside | None = None,
) -> Result:
    """Mean, standard deviation and confidence interval of the games' scores, with what is told beside them."""
    scores, beside = [game.score for game in games], beside or Beside()
    result = Result(
        environment=environment,
        episodes=len(scores),
        greedy=greedy,
        epsilon=epsilon,
        mean=float(np.mean(scores)),
        std=float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0,
        low=None,
        high=None,
        distinct=len({game.trace for game in games}),
        scores=scores,
        metrics=beside.metrics,
        failed=beside.failed,
    )
    counted = result.episodes if result.draws_actions else result.distinct
    if counted < LEAST_GAMES or min(scores) == max(scores):
        return result
    margin = _students_t(counted - 1) * float(np.std(scores)) / math.sqrt(counted - 1)
    margin += float(np.diff(np.unique(scores)).min()) / (2 * counted)  # for continuity, where games are won or lost
    return msgspec.structs.replace(result, low=result.mean - margin, high=result.mean + margin)


def _students_t(freedom: int) -> float:
    """
    The 97.5 % quantile of Student's t distribution, for 4 degrees of freedom or more within 0.0015:
    Cornish and Fisher's expansion (Abramowitz and Stegun 1964, 26.7.5).
    """
    x = NORMAL
    terms: tuple[float, ...] = (
        (x**3 + x) / 4,
        (5 * x**5 + 16 * x**3 + 3 * x) / 96,
        (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384,
        (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160,
    )
    return x + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


class Player:
    """An actor in environments, which are reset with `seed`."""

    def __init__(self, actor: Actor, environments: Environments, *, greedy: bool, seed: int) -> None:
        self._actor = actor
        self._environments = environments
        self._greedy = greedy
        self.steps = np.zeros(environments.count, np.int64)  # of the games in progress
        self._observations = torch.from_numpy(environments.reset(seed))
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
        """Step every environment once."""
        stepped = self._environments.step(decision.actions.cpu().numpy())
        ended = stepped.ended
        self.steps = np.where(ended, 0, self.steps + 1)
        self._observations, self._state = torch.from_numpy(stepped.observations), decision.state
        self._starts = torch.from_numpy(ended)
        return stepped


def shares(episodes: int, count: int) -> NDArray[np.int64]:
    """[count]: the number of games that each environment plays. Short games, which end first, would be too many."""
    share = np.full(count, episodes // count)
    share[: episodes % count] += 1
    return share


def play(
    actor: Actor,
    environments: Environments,
    *,
    episodes: int,
    greedy: bool,
    seed: int,
    most_steps: int = MOST_GAME_STEPS,
    keeps_actions: bool = True,
    beside: Beside | None = None,
) -> Iterator[Game]:
    """
    `episodes` full games, as they end, a share in each environment. One that an exception cuts off is played again.

    Raises PsRlError when an environment goes on with a game after `most_steps`, which is the limit that it has itself
    wherever it can be given one. Without `keeps_actions` games have none, and memory is the same however long they are.
    """
    share, patience, beside = shares(episodes, environments.count), _Patience(most_steps), beside or Beside()
    actions: list[list[Action]] = [[] for _ in range(environments.count)]
    traces = [xxhash.xxh3_64() for _ in range(environments.count)]
    player, returns = Player(actor, environments, greedy=greedy, seed=seed), np.zeros(environments.count)
    while share.any():
        seen, decision = player.grounds[0].numpy(), player.decide()
        for taken, action in zip(actions, decision.actions.tolist() if keeps_actions else (), strict=keeps_actions):
            taken.append(action)
        # The trace comes before the step, which may write the next observations into the same memory.
        add_to(traces, seen, decision.actions.cpu().numpy())
        lengths = player.steps + 1
        stepped = player.take(decision)
        add_to(traces, stepped.rewards)
        returns += stepped.rewards
        patience.check(np.where(share, player.steps, 0), environments)
        for row in np.flatnonzero(stepped.ended):
            if share[row] and beside.ended(stepped, int(row)):
                share[row] -= 1
                patience.ended(lengths[row])
                trace = traces[row].hexdigest()
                yield Game(environment=int(row), score=float(returns[row]), actions=actions[row], trace=trace)
            returns[row], actions[row], traces[row] = 0.0, [], xxhash.xxh3_64()
    patience.report(episodes)


class _Patience:
    """How long games may be, and how long nobody is told that none has ended."""

    def __init__(self, most_steps: int) -> None:
        self._most_steps = most_steps
        self._silent_until = time.monotonic() + SILENT_SECONDS
        self._cut_off = 0  # games without a limit of their own

    def ended(self, steps: int) -> None:
        """A game has ended after `steps` steps."""
        self._silent_until = math.inf
        self._cut_off += steps >= MOST_GAME_STEPS

    def report(self, episodes: int) -> None:
        """Log how many of the games, which are over, were cut off."""
        if self._cut_off:
            log.warning("%d of %d games were cut off after %s steps", self._cut_off, episodes, f"{MOST_GAME_STEPS:,}")

    def check(self, lengths: NDArray[np.int64], environments: Environments) -> None:
        """`lengths` [B]: steps of the games in progress. Raises PsRlError when one is longer than it may be."""
        row = int(lengths.argmax())
        if (steps := int(lengths[row])) > self._most_steps:
            raise PsRlError(
                f"{next(iter(environments.description.values()))}: environment {row} has not ended its game after "
                f"{steps:,} steps, so it has no score; give it a time limit, such as gymnasium.wrappers.TimeLimit"
            )
        if time.monotonic() > self._silent_until:
            self._silent_until = math.inf
            log.warning(
                f"no game has ended yet, after {steps:,} steps of each; a game is cut off after {self._most_steps:,} "
                "steps; for fewer give --max-episode-steps (max_episode_steps in Python)"
            )


def add_to(traces: Sequence[xxhash.xxh3_64], *arrays: NDArray[Any]) -> None:
    """Add the rows [B, ...] of each array to the traces of their games."""
    for array in arrays:
        for trace, row in zip(traces, np.ascontiguousarray(array), strict=True):
            trace.update(row.data if row.ndim else row.tobytes())
