"""Environments of a test's own class or function."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from gymnasium.vector import VectorEnv

from ps_common.settings.run_spec import Environment
from rl_agent.environments import custom_environment
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import make_environments


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes environments of a function that gets the number of each."""
    opened: list[Environments] = []

    def make(
        one: Callable[..., Any], *, count: int = 2, endless: bool = False, forgives: bool = False, **settings: Any
    ) -> Environments:
        numbers = itertools.count() if endless else iter(range(count))
        is_vector = isinstance(one, type) and issubclass(one, VectorEnv)
        maker = one if is_vector else lambda: one(next(numbers))
        monkeypatch.setattr(custom_environment, "_maker", lambda path: maker)
        opened.append(make_environments(Environment(id="mine:Game", **settings), count=count, forgives=forgives))
        return opened[-1]

    yield make
    for environments in opened:
        environments.close()
