"""
Replay memory: the newest steps of a worker's environments, drawn at random as n-step returns.

For a step at time t, with rewards r and terminations of its game,

    return    = r_t + γ r_{t+1} + … + γ^(k−1) r_{t+k−1}
    discount  = γ^k, or 0 where the game terminated within these k steps
    next      = the observation after them

where k = n, or less where the game ends before. Where a game was truncated, `next` is its final observation: a time
limit is bootstrapped. Steps whose n-step return is not complete yet are not drawn.

Prioritized drawing is proportional (Schaul et al. 2016, section 3.3): probability p^α / Σ p^α, and importance weights
(N P)^−β, divided by the greatest of the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_agent.replay.step_ring import FINAL, LOST, STEP, TERMINATED, Layout, StepRing
from rl_agent.replay.sum_tree import SumTree
from rl_agent.rollouts import Trajectory

MIB = 2**20
SMALLEST_PRIORITY = 1e-6  # a step whose error is 0 may still be drawn
MOST_TRIES = 100  # draws of a whole batch; fewer than 1 in 100 rows can be drawn beyond that


@dataclass(frozen=True)
class Prioritized:
    """How strongly errors decide what is drawn."""

    exponent: float  # α; 0 draws uniformly
    correction: float  # β of the importance weights; 1 corrects fully


@dataclass(frozen=True)
class Drawn:
    """N steps, in any order."""

    observations: Tensor  # [N, ...]
    actions: Tensor  # [N, ...]
    rewards: Tensor  # [N] the n-step return without its last term
    discounts: Tensor  # [N] of the value of `next_observations`
    next_observations: Tensor  # [N, ...]
    weights: Tensor  # [N] importance weights; 1 where the drawing is uniform
    places: tuple[NDArray[np.int64], NDArray[np.int64]]  # environments and rows, for `set_priorities`
    age: float  # mean number of steps that their environments have made since


class ReplayMemory:
    """
    The memory of one worker. Its size is decided by the first unroll: at most `most_steps`, and at most `most_mib`.

    With a `path` the memory lies in that file, and continues with what the file has of the same run and spaces.
    """

    def __init__(
        self,
        *,
        most_steps: int,
        most_mib: float,
        frames: int = 1,
        n_step: int = 1,
        prioritized: Prioritized | None = None,
        path: str | Path | None = None,
        run: str = "",
        seed: int = 0,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`frames`: of which an image consists along its first axis. `report` gets sentences for the log."""
        self._most = most_steps, most_mib
        self._frames = frames
        self._n_step = n_step
        self._prioritized = prioritized
        self._path = None if path is None else Path(path)
        self._run = run
        self._report = report
        self._random = np.random.default_rng(seed)
        self._ring: StepRing | None = None
        self._tree: SumTree | None = None
        self._greatest = 1.0  # priority so far
        self._last: NDArray[np.generic] | None = None  # [B, ...] observations after the newest steps

    def __len__(self) -> int:
        """Rows that are kept."""
        return 0 if self._ring is None else int((self._ring.written - self._ring.oldest).sum())

    @property
    def fill(self) -> float:
        """The share of the memory that is used."""
        return 0.0 if self._ring is None else len(self) / (self._ring.layout.environments * self._ring.layout.length)

    def add(self, trajectory: Trajectory) -> None:
        """Take the steps of an unroll, whose buffers may be overwritten afterwards."""
        observations, actions = trajectory.observations.numpy(), trajectory.actions.numpy()
        ring = self._ring or self._begin(observations, actions)
        if self._last is None:
            self._mark_gap(ring)
        rewards, terminated = trajectory.rewards.numpy(), trajectory.discounts.numpy() == 0
        finals = {
            (cut_off.t, int(row)): last.numpy()
            for cut_off in trajectory.cut_offs
            for row, last in zip(cut_off.rows, cut_off.observations, strict=True)
        }
        for t, environment in np.ndindex(rewards.shape):
            kind = TERMINATED if terminated[t, environment] else STEP
            self._append(ring, environment, kind, observations[t, environment], actions[t, environment],
                         float(rewards[t, environment]))  # fmt: skip
            if (final := finals.get((t, environment))) is not None:
                self._append(ring, environment, FINAL, final)
        self._last = observations[-1].copy()

    def draw(
        self,
        count: int,
        *,
        discount: float,
        rewards: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda seen: seen,
    ) -> Drawn | None:
        """
        `count` steps with their n-step returns; None while hardly any can be drawn.

        `rewards` are what the learner takes for these rewards of steps.
        """
        if self._ring is None or not len(self):
            return None
        found: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        missing = count
        for _ in range(MOST_TRIES):
            environments, rows = self._candidates(missing)
            is_complete = self._returns(environments, rows, discount, rewards)[0]
            found.append((environments[is_complete], rows[is_complete]))
            missing -= int(is_complete.sum())
            if not missing:
                break
        else:
            return None
        environments, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
        _, returns, discounts, after = self._returns(environments, rows, discount, rewards)
        ring, slots = self._ring, rows % self._ring.layout.length
        return Drawn(
            observations=torch.from_numpy(ring.observations(environments, rows)),
            actions=torch.from_numpy(ring.action[environments, slots]),
            rewards=torch.from_numpy(returns.astype(np.float32)),
            discounts=torch.from_numpy(discounts.astype(np.float32)),
            next_observations=torch.from_numpy(ring.observations(environments, after)),
            weights=self._weights(environments, slots),
            places=(environments, rows),
            age=float((ring.written[environments] - rows).mean()),
        )

    def set_priorities(self, drawn: Drawn, errors: Tensor) -> None:
        """The absolute errors [N] of drawn steps decide how often they are drawn again."""
        if self._tree is None or self._prioritized is None or self._ring is None:
            return
        environments, rows = drawn.places
        is_kept = rows >= self._ring.oldest[environments]
        priorities = (errors.numpy().astype(np.float64) + SMALLEST_PRIORITY) ** self._prioritized.exponent
        leaves = environments * self._ring.layout.length + rows % self._ring.layout.length
        self._tree.set(leaves[is_kept], priorities[is_kept])
        self._greatest = max(self._greatest, float(priorities.max()))

    def _begin(self, observations: NDArray[np.generic], actions: NDArray[np.generic]) -> StepRing:
        layout = Layout.within(
            int(self._most[1] * MIB),
            self._most[0],
            environments=observations.shape[1],
            observation=observations.shape[2:],
            observation_dtype=str(observations.dtype),
            action=actions.shape[2:],
            action_dtype=str(actions.dtype),
            frames=self._frames,
            run=self._run,
        )
        self._ring = ring = self._opened(layout)
        if self._prioritized is not None:
            self._tree = SumTree(layout.environments * layout.length)
            drawable = (ring.kind == STEP) | (ring.kind == TERMINATED)
            self._tree.set(np.flatnonzero(drawable), self._greatest)
        return ring

    def _opened(self, layout: Layout) -> StepRing:
        if self._path is None:
            return StepRing.in_memory(layout)
        try:
            ring = StepRing.open(self._path, layout)
        except OSError as error:
            self._report(
                f"the replay memory is not kept in {self._path} ({error}); it lies in memory, and begins empty"
            )
            return StepRing.in_memory(layout)
        kept = int((ring.written - ring.oldest).sum()) - ring.lost
        torn = f"; {ring.lost} rows were torn and are left out" if ring.lost else ""
        begins = f"continues with {kept} rows" if kept else "begins empty"
        self._report(f"the replay memory in {self._path} {begins}{torn}")
        return ring

    def _mark_gap(self, ring: StepRing) -> None:
        """What comes next does not follow the newest rows, which an earlier process has written into the file."""
        for environment in range(ring.layout.environments):
            if ring.written[environment]:
                nothing = np.zeros(ring.layout.observation, ring.layout.observation_dtype)
                self._append(ring, environment, LOST, nothing)

    def _append(
        self, ring: StepRing, environment: int, kind: int, observation: NDArray[np.generic],
        action: NDArray[np.generic] | int = 0, reward: float = 0.0,
    ) -> None:  # fmt: skip
        row = int(ring.written[environment])
        ring.append(environment, kind, observation, action, reward)
        if self._tree is not None:
            leaf = environment * ring.layout.length + row % ring.layout.length
            self._tree.set(np.array([leaf]), self._greatest if kind in (STEP, TERMINATED) else 0.0)

    def _candidates(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        assert self._ring is not None
        ring, length = self._ring, self._ring.layout.length
        if self._tree is None:
            ends = np.cumsum(ring.written - ring.oldest)
            places = self._random.integers(0, ends[-1], count)
            environments = np.searchsorted(ends, places, side="right").astype(np.int64)
            rows = ring.written[environments] - (ends[environments] - places)
            return environments, rows.astype(np.int64)
        leaves = self._tree.draw(count, self._random)
        environments, slots = leaves // length, leaves % length
        newest = ring.written[environments] - 1
        return environments, newest - (newest - slots) % length

    def _weights(self, environments: NDArray[np.int64], slots: NDArray[np.int64]) -> Tensor:
        if self._tree is None or self._prioritized is None or self._ring is None:
            return torch.ones(len(slots))
        chances = self._tree.of(environments * self._ring.layout.length + slots) / self._tree.total
        weights = (len(self) * chances) ** -self._prioritized.correction
        return torch.from_numpy((weights / weights.max()).astype(np.float32))

    def _returns(
        self,
        environments: NDArray[np.int64],
        rows: NDArray[np.int64],
        discount: float,
        of_steps: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Whether each return is complete, the return, the discount of what comes next, and the row of that."""
        assert self._ring is not None
        ring, length = self._ring, self._ring.layout.length
        kinds = ring.kind[environments, rows % length]
        is_complete = (rows >= ring.oldest[environments]) & ((kinds == STEP) | (kinds == TERMINATED))
        rewards, discounts, after = np.zeros(len(rows)), np.ones(len(rows)), rows.copy()
        goes_on = is_complete.copy()
        for _ in range(self._n_step):
            rewards += np.where(goes_on, discounts * of_steps(ring.reward[environments, after % length]), 0.0)
            discounts = np.where(goes_on, np.where(kinds == TERMINATED, 0.0, discounts * discount), discounts)
            goes_on &= kinds == STEP
            after = np.where(goes_on, after + 1, after)
            is_known = after < ring.written[environments]
            kinds = np.where(is_known, ring.kind[environments, after % length], LOST)
            is_complete &= ~goes_on | (kinds != LOST)
            goes_on &= (kinds == STEP) | (kinds == TERMINATED)
        return is_complete, rewards, discounts, after
