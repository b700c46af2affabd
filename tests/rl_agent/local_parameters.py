"""Parameters without a server: pushes move the weights, and the run ends after some of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from ps_client.shell.newest import Newest
from ps_common.errors import RunEnded
from ps_common.protocol.messages import Episode
from rl_agent.networks.flat_network import FlatNetwork


@dataclass
class LocalParameters:
    """
    Plain gradient descent on `weights`; the push after the last raises RunEnded.

    The target weights are refreshed every `target_interval` steps; 0: never.
    """

    weights: Tensor
    learning_rate: float
    updates: int
    target_interval: int = 0
    version: int = 1
    global_steps: int = 0
    target_version: int = 0
    target: Tensor | None = None  # of that version
    pulled_targets: list[int] = field(default_factory=list)  # versions
    pushed: list[tuple[Tensor | None, int, int]] = field(default_factory=list)  # (gradient, computed_on, steps)
    reports: list[tuple[list[Episode], dict[str, float]]] = field(default_factory=list)
    is_finished: bool = False

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        if not target:
            return self._newest()
        self.pulled_targets.append(self.target_version)
        weights = self.weights if self.target is None else self.target
        return Newest(1, self.target_version, self.global_steps, self.target_version, weights.clone())

    def push_pull(
        self, gradient: Tensor | None, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()
    ) -> Newest:
        self.pushed.append((None if gradient is None else gradient.clone(), computed_on.version, steps))
        if len(self.pushed) == self.updates:
            raise RunEnded("that was all")
        if gradient is not None:
            self.weights = self.weights - self.learning_rate * gradient
            self.version += 1
        before, self.global_steps = self.global_steps, self.global_steps + steps
        if self.target_interval and self.global_steps // self.target_interval > before // self.target_interval:
            self.target, self.target_version = self.weights, self.version
        return self._newest()

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        self.reports.append((list(episodes), meters))

    def finish(self) -> None:
        self.is_finished = True

    def _newest(self) -> Newest:
        return Newest(
            epoch=1,
            version=self.version,
            global_steps=self.global_steps,
            target_version=self.target_version,
            weights=self.weights.clone(),
        )


def parameters_for(
    network: FlatNetwork, *, learning_rate: float, updates: int, target_interval: int = 0
) -> LocalParameters:
    """Parameters that start from the network's weights."""
    first = network.weights.clone()
    return LocalParameters(first, learning_rate, updates, target_interval, target=first)
