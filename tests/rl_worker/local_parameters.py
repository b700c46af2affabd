"""The server's part of training, without a server: weights that the pushes move, and an end after some of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from common.errors import RunEnded
from common.messages import Episode
from rl_worker.gradients import FlatNetwork
from rl_worker.remote_parameters import Newest


@dataclass
class LocalParameters:
    """Plain gradient descent on `weights`; raises RunEnded instead of answering the push after the last."""

    weights: Tensor
    learning_rate: float
    updates: int
    version: int = 1
    global_steps: int = 0
    pushed: list[tuple[Tensor, int, int]] = field(default_factory=list)  # (gradient, computed_on, steps)
    reports: list[tuple[list[Episode], dict[str, float]]] = field(default_factory=list)

    def pull(self, have: Newest | None = None) -> Newest:
        return self._newest()

    def push_pull(self, gradient: Tensor, *, computed_on: Newest, steps: int) -> Newest:
        self.pushed.append((gradient.clone(), computed_on.version, steps))
        if len(self.pushed) == self.updates:
            raise RunEnded("that was all")
        self.weights = self.weights - self.learning_rate * gradient
        self.version += 1
        self.global_steps += steps
        return self._newest()

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        self.reports.append((list(episodes), meters))

    def _newest(self) -> Newest:
        return Newest(
            epoch=1,
            version=self.version,
            global_steps=self.global_steps,
            target_version=0,
            weights=self.weights.clone(),
        )


def parameters_for(network: FlatNetwork, *, learning_rate: float, updates: int) -> LocalParameters:
    """They start from the network's own weights."""
    return LocalParameters(network.weights.clone(), learning_rate=learning_rate, updates=updates)
