"""
Statistics that grow with every push: of observations, and of the discounted returns that rewards are divided by.

Joint angles and speeds, and rewards, each have a scale of their own, which is unknown before the first steps. A
statistic of the schema is a sum: a push holds what its worker has added, and the server adds that up. So the merged
mean and variance are those of all steps of all workers, in whatever order the pushes arrive. Differences are summed,
from one center for all workers, so that a mean far from zero costs no precision. Checkpoints keep the sums, and a
resumed run continues them.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ps_common.settings.run_spec import Method
from rl_agent.environments.spaces import Part
from rl_agent.networks.custom_network import part_of

SMALLEST_VARIANCE = 1e-6  # of an element of an observation
SMALLEST_RETURN_VARIANCE = 1e-8  # as is usual (Engstrom et al. 2020)
# Of the square of a mean, which is its distance from the center: sums of float32 cannot tell smaller variances from 0.
SMALLEST_SHARE = 1e-5
SUMMED_TOGETHER = 2**18  # numbers: sums are made of a part of the observations at a time, in a MiB and not in a copy
CLIP = 5.0  # normalized observations are clipped to ± this
REWARD_CLIP = 10.0  # normalized rewards are clipped to ± this


class RunningStatistics(nn.Module):
    """
    Mean and standard deviation of D numbers, over the rows of all workers so far.

    A row [D, ...] is that of one step, whatever its size: of an image it counts the mean of each channel, and that of
    the squares. `count`, `total` and `squares` are sums over rows minus `center`.
    """

    center: Tensor
    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, size: int, *, smallest_variance: float) -> None:
        super().__init__()
        self._smallest_variance = smallest_variance
        self.register_buffer("center", torch.zeros(size))
        self.register_buffer("count", torch.ones(()))
        self.register_buffer("total", torch.zeros(size))
        self.register_buffer("squares", torch.ones(size))
        self._added: dict[str, Tensor] = {}  # float64 sums over rows that are not pushed yet, by buffer

    def mean_and_deviation(self) -> tuple[Tensor, Tensor]:
        """[D] and [D]; the mean is that of rows minus `center`."""
        mean = self.total / self.count
        variance = self.squares / self.count - mean.square()
        smallest = (SMALLEST_SHARE * mean.square()).clamp_min(self._smallest_variance)
        return mean, torch.maximum(variance, smallest).sqrt()

    def begin(self) -> None:
        """Initialize the sums, and their center, from the rows that were added: those of random play."""
        added = self.take_added()
        mean = added["total"] / added["count"]
        self.center.copy_(self.center + mean)
        self.count.copy_(added["count"])
        self.total.zero_()
        self.squares.copy_((added["squares"] - added["count"] * mean.square()).clamp_min(0))

    def add(self, rows: Tensor) -> None:
        """Add rows [N, D, ...] to the sums of the next push."""
        for name, value in self._sums(rows).items():
            self._added[name] = self._added.get(name, 0) + value

    def take_added(self) -> dict[str, Tensor]:
        """The increments of the server's statistics, by buffer name; they start again at zero here."""
        added, self._added = self._added, {}
        return added

    def _sums(self, rows: Tensor) -> dict[str, Tensor]:
        center = self.center.view(-1, 1)
        total, squares = torch.zeros(2, len(center), dtype=torch.float64, device=center.device)
        for part in torch.split(rows, max(1, SUMMED_TOGETHER // math.prod(rows.shape[1:]))):
            apart = part.to(center.device).flatten(2) if part.dim() > 2 else part.to(center.device).unsqueeze(2)
            apart = apart - center
            total += apart.mean(2).sum(0, dtype=torch.float64)
            squares += apart.square_().mean(2).sum(0, dtype=torch.float64)
        return {"count": torch.tensor(float(len(rows)), device=center.device), "total": total, "squares": squares}


class RunningNormalization(RunningStatistics):
    """float32 observations → (x − mean) / standard deviation, clipped: each number of vectors or channel of images."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        """`shape`: [D] of vectors, [C, H, W] of images."""
        super().__init__(shape[0], smallest_variance=SMALLEST_VARIANCE)
        self._beside = (1,) * (len(shape) - 1)  # axes that share a mean
        self.part: Part | None = None  # the place in packed observations

    def forward(self, observations: Tensor) -> Tensor:
        center, mean, deviation = (each.view(-1, *self._beside) for each in (self.center, *self.mean_and_deviation()))
        return ((observations - center - mean) / deviation).clamp(-CLIP, CLIP)

    def measure(self, seen: Tensor) -> None:
        """Add observations [N, ...] of random play to those that the statistics begin with."""
        if not self._added:  # the center is near all others
            self.center.copy_(self._rows(seen)[0].flatten(1).mean(1) if self._beside else self._rows(seen)[0])
        self.observe(seen)

    def observe(self, seen: Tensor) -> None:
        """Add observations [N, ...] to the statistics of the next push."""
        self.add(self._rows(seen))

    def _rows(self, seen: Tensor) -> Tensor:
        return seen if self.part is None else part_of(seen, self.part)


class ReturnNormalization(RunningStatistics):
    """
    Rewards divided by the standard deviation of the discounted return, and clipped (Engstrom et al. 2020, section 3).

    The return of a step is the sum of the rewards of its episode so far, each discounted by its age. Every environment
    has a stream of its own, which begins again with every episode. Acting does not depend on it.
    """

    def __init__(self, *, discount: float, clip: float) -> None:
        """`clip`: of rewards before they are counted; 0: none."""
        super().__init__(1, smallest_variance=SMALLEST_RETURN_VARIANCE)
        self._discount = discount
        self._clip = clip
        self._before: Tensor | None = None  # [B]: the discounted return before the next step

    def forward(self, rewards: Tensor) -> Tensor:
        return (rewards / reward_unit(self)).clamp(-REWARD_CLIP, REWARD_CLIP)

    def begin(self) -> None:
        super().begin()
        self._before = None

    def observe(self, rewards: Tensor, continues: Tensor) -> None:
        """Add an unroll to the statistics of the next push. `continues` [T, B] is 0 where a return ends there."""
        self.add(self._returns(rewards, continues))

    def _returns(self, rewards: Tensor, continues: Tensor) -> Tensor:
        """[T · B, 1]"""
        rewards = rewards.clamp(-self._clip, self._clip) if self._clip else rewards
        before = torch.zeros_like(rewards[0]) if self._before is None else self._before
        returns = torch.empty_like(rewards)
        for t, reward in enumerate(rewards):
            returns[t] = before + reward
            before = self._discount * continues[t] * returns[t]
        self._before = before
        return returns.view(-1, 1)


def reward_unit(returns: ReturnNormalization | None) -> float:
    """The standard deviation that the learner's rewards are divided by now; 1 where they are not normalized."""
    return 1.0 if returns is None else float(returns.mean_and_deviation()[1])


def return_normalization(settings: Method) -> ReturnNormalization | None:
    """The normalization of the rewards that an agent with these settings learns from; None: they are not normalized."""
    if settings.reward_normalization == "none":
        return None
    return ReturnNormalization(discount=settings.discount, clip=settings.reward_clip)


def observe(network: nn.Module, observations: Tensor, rewards: Tensor, continues: Tensor) -> None:
    """Add an unroll to the network's statistics: observations [T, B, ...], rewards and continues [T, B]."""
    for _, module in _running(network):
        match module:
            case RunningNormalization():
                module.observe(observations.flatten(0, 1))
            case ReturnNormalization():
                module.observe(rewards, continues)


def take_added(network: nn.Module) -> dict[str, Tensor]:
    """The increments of the running statistics for the next push, by the buffers' full names."""
    return {
        f"{path}.{name}": value for path, module in _running(network) for name, value in module.take_added().items()
    }


def _running(network: nn.Module) -> Iterator[tuple[str, RunningStatistics]]:
    return ((path, module) for path, module in network.named_modules() if isinstance(module, RunningStatistics))
