"""A callback after each environment step: a watchdog learns from it that the trainer makes progress."""

from collections.abc import Callable
from typing import Any

from rl_worker.environments.interface import Environments, Stepped
from rl_worker.environments.spaces import Actions, Observations


class StepCallback:
    """A wrapper that calls `stepped` after each reset and each step; everything else is passed through."""

    def __init__(self, environments: Environments, stepped: Callable[[], None]) -> None:
        self._environments = environments
        self._stepped = stepped

    def reset(self, seed: int) -> Observations:
        observations = self._environments.reset(seed)
        self._stepped()
        return observations

    def step(self, actions: Actions) -> Stepped:
        stepped = self._environments.step(actions)
        self._stepped()
        return stepped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environments, name)
