"""Environments that tell of each of their steps: whoever watches a trainer sees that it moves."""

from collections.abc import Callable
from typing import Any

from rl_worker.environments.interface import Actions, Environments, Observations, Stepped


class CountedSteps:
    """The environments; `moved` is called after each reset and each step. All else is theirs."""

    def __init__(self, environments: Environments, moved: Callable[[], None]) -> None:
        self._environments = environments
        self._moved = moved

    def reset(self, seed: int) -> Observations:
        observations = self._environments.reset(seed)
        self._moved()
        return observations

    def step(self, actions: Actions) -> Stepped:
        stepped = self._environments.step(actions)
        self._moved()
        return stepped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environments, name)
