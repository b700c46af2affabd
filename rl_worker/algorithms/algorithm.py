"""What training asks of an algorithm."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from rl_worker.rollouts import Decision, State, Trajectory


@dataclass(frozen=True)
class Loss:
    """A scalar to differentiate, and named scalars for people (tensors: reading them would wait for the device)."""

    total: Tensor
    meters: dict[str, Tensor]


class Algorithm(Protocol):
    """Anything with these can be trained; there is no base class. It is the actor of its own rollouts."""

    @property
    def network(self) -> nn.Module:
        """θ"""
        ...

    target_network: nn.Module | None  # θ⁻, of the same schema; None where nothing is bootstrapped from it
    unroll_length: int  # steps of each environment between two updates
    commits_next_action: bool  # the action after an unroll is decided in it, and really taken (Sarsa)
    learns_with_newest: bool  # it allows for another policy than the one that acted: newer weights are pulled first
    discount: float
    gradient_clip: float  # greatest norm of a gradient; 0: any

    def begin_unroll(self, global_steps: int) -> None:
        """What follows is played and learned at T = global_steps: for whatever is annealed on it."""
        ...

    def initial_state(self, count: int) -> State:
        """What is remembered before anything was seen."""
        ...

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        """Decide for observations [B, ...]; without gradients."""
        ...

    def batches(self, trajectory: Trajectory) -> Iterator[Any]:
        """What to learn from one unroll; each batch becomes one push."""
        ...

    def loss(self, batch: Any) -> Loss:
        """The loss of a batch."""
        ...
