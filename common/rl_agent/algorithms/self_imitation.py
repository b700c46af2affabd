"""
Self-imitation (Oh et al. 2018): steps whose return was better than expected are remembered, and learned again.

Each batch adds the loss of some remembered steps to that of the unroll, −log π(a|s) (R − V(s))₊ + c ½ (R − V(s))₊²:
a rare success is taken up from a few games, not from the hundreds that make it frequent. A step is remembered when its
return R, the discounted sum of its real rewards, has ended above its value; it is drawn the more often, the more R
exceeds the value. A return of 0 or less is never imitated: to lose later than expected is no success. A memory belongs
to one worker, and is lost with it.

The unit of a return is that of the learner's rewards, in which values are: clipped, divided by a running standard
deviation, and scaled. The divisor changes in training. So returns are remembered in the unit before the division, and
drawn in the newest one: otherwise early mediocre games would count as successes for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ps_common.settings.run_spec import IMITATION_BYTES
from rl_agent.rollouts import Trajectory

PRIORITY_EXPONENT = 0.6  # Oh et al. 2018, appendix A
SMALLEST_PRIORITY = 1e-3  # of a step whose value has caught up with its return
VALUE_WEIGHT = 0.01  # c, as in Oh et al. 2018 for Atari


@dataclass(frozen=True)
class Remembered:
    """N steps in any order."""

    observations: Tensor  # [N, ...]
    actions: Tensor  # [N, ...]
    returns: Tensor  # [N] R, in the unit of rewards before their division, while it is remembered
    values: Tensor  # [N] V(s) when the step was taken

    def __getitem__(self, rows: Tensor | slice) -> "Remembered":
        return Remembered(*(tensor[rows] for tensor in vars(self).values()))

    def __len__(self) -> int:
        return len(self.returns)


class SelfImitation:
    """
    The memory of one worker: at most `capacity` steps, whose observations take IMITATION_BYTES at most; the oldest are
    replaced.
    """

    def __init__(self, capacity: int, *, discount: float, seed: int) -> None:
        self._capacity = capacity
        self._discount = discount
        self._random = torch.Generator().manual_seed(seed)
        self._open: list[list[Remembered]] = []  # of each environment: its return in progress, rewards as returns
        self._kept: Remembered | None = None
        self._priorities = torch.zeros(capacity)
        self._next = 0  # row of the next step
        self._count = 0

    def remember(self, trajectory: Trajectory, rewards: Tensor, *, unit: float = 1.0) -> None:
        """
        Take the steps of an unroll; `rewards` [T, B] are those of the learner, which were divided by `unit`.

        A return in progress keeps at most an environment's share of `capacity` steps, the newest. The steps of a return
        that was cut off are forgotten: their returns are not known.
        """
        count = rewards.shape[1]
        if self._kept is None:
            step_bytes = trajectory.observations[0, 0].nbytes
            self._capacity = min(self._capacity, max(1, IMITATION_BYTES // step_bytes))
        if not self._open:
            self._open = [[] for _ in range(count)]
        for environment, still_open in enumerate(self._open):
            most = max(1, self._capacity // count)
            for ended in _ended(still_open, environment, trajectory, rewards * unit, most=most):
                steps = replace(ended, returns=_discounted_sums(ended.returns, self._discount))
                self._keep(steps[steps.returns / unit > steps.values.clamp(min=0)], unit)

    def draw(self, count: int, *, unit: float = 1.0) -> tuple[Tensor, Remembered] | None:
        """
        Rows of the memory and their steps, drawn with replacement; None while it has fewer than `count`, and room for
        more.

        The returns of these steps are divided by `unit`, that of the learner's rewards now.
        """
        if self._kept is None or self._count < min(count, self._capacity):
            return None
        rows = torch.multinomial(self._priorities[: self._count], count, replacement=True, generator=self._random)
        steps = self._kept[rows]
        return rows, replace(steps, returns=steps.returns / unit)

    def set_priorities(self, rows: Tensor, advantages: Tensor) -> None:
        """Set how often these rows are drawn, by their (R − V(s))₊ [N] now."""
        self._priorities[rows] = (advantages.float() + SMALLEST_PRIORITY) ** PRIORITY_EXPONENT

    def _keep(self, steps: Remembered, unit: float) -> None:
        if not len(steps):
            return
        if self._kept is None:
            self._kept = Remembered(*(part.new_empty(self._capacity, *part.shape[1:]) for part in vars(steps).values()))
        rows = (self._next + torch.arange(len(steps))) % self._capacity
        for kept, new in zip(vars(self._kept).values(), vars(steps).values(), strict=True):
            kept[rows] = new
        self.set_priorities(rows, steps.returns / unit - steps.values)
        self._next = (self._next + len(steps)) % self._capacity
        self._count = min(self._capacity, self._count + len(steps))


def _ended(
    still_open: list[Remembered], environment: int, trajectory: Trajectory, rewards: Tensor, *, most: int
) -> Iterator[Remembered]:
    """The steps of each return that ended in the unroll, with rewards as returns; `still_open` receives the others."""
    columns = (trajectory.observations, trajectory.actions, rewards, trajectory.recorded["values"])
    continues, discounts = (tensor[:, environment] for tensor in (trajectory.continues, trajectory.discounts))
    ends = (torch.nonzero(continues == 0).flatten() + 1).tolist()
    for start, end in zip([0, *ends], [*ends, len(rewards)], strict=True):
        # Copies: the next unroll overwrites the trajectory's memory.
        newest = slice(max(start, end - most), end)
        still_open.append(Remembered(*(column[newest, environment].clone() for column in columns)))
        while len(still_open) > 1 and sum(map(len, still_open[1:])) >= most:
            still_open.pop(0)
        if end in ends:
            together = zip(*(vars(part).values() for part in still_open), strict=True)
            still_open.clear()
            if discounts[end - 1] == 0:
                yield Remembered(*(torch.cat(parts) for parts in together))[-most:]


def _discounted_sums(rewards: Tensor, discount: float) -> Tensor:
    """
    [N] the rewards of a return in order → [N] their discounted sum from each step on.

    lambda_returns has the same numbers, but its loop over tensors takes 16 µs a step for a single environment, against
    0.2 µs for this one; a step of Pong takes 640 in all.
    """
    sums, following = [], 0.0
    for reward in reversed(rewards.tolist()):
        following = reward + discount * following
        sums.append(following)
    return torch.tensor(sums[::-1], dtype=rewards.dtype)
