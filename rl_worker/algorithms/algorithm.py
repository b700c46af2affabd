"""What training asks of an algorithm."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from rl_worker.rollouts import ActionChoice, Trajectory


@dataclass(frozen=True)
class Loss:
    """A scalar to differentiate, and named scalars for people (tensors: reading them would wait for the device)."""

    total: Tensor
    meters: dict[str, Tensor]


class Algorithm(Protocol):
    """Anything with these can be trained; there is no base class."""

    network: nn.Module
    unroll_length: int  # steps of each environment between two updates
    discount: float
    gradient_clip: float  # greatest norm of a gradient; 0: any

    def act(self, observations: Tensor, *, greedy: bool = False) -> ActionChoice:
        """Choose for observations [B, ...]; without gradients."""
        ...

    def batches(self, trajectory: Trajectory) -> Iterator[Any]:
        """What to learn from one unroll; each batch becomes one push."""
        ...

    def loss(self, batch: Any, *, global_steps: int) -> Loss:
        """The loss of a batch; `global_steps` is T, for what is annealed on it."""
        ...
