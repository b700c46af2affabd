"""
Environments in a process each, which compute side by side: Gymnasium's AsyncVectorEnv, for --step-in processes.

Each process makes its environment itself, from the settings, and so imports the user's module itself.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from ps_common.settings.run_spec import Environment
from rl_agent.environments.any_gymnasium import wrapped_environment
from rl_agent.environments.forgiving import Forgiving


def in_processes(settings: Environment, count: int, with_screen: bool, *, forgives: bool) -> AsyncVectorEnv:
    """A vector environment of so many. `forgives`: one that raises an exception is made anew in its process."""
    make = partial(_made, settings, with_screen, forgives, tuple(sys.path))
    return AsyncVectorEnv(
        [make] * count, shared_memory=True, context="forkserver", autoreset_mode=AutoresetMode.SAME_STEP
    )


def _made(settings: Environment, with_screen: bool, forgives: bool, path: Sequence[str]) -> gymnasium.Env[Any, Any]:
    sys.path[:] = path
    make = partial(wrapped_environment, settings, with_screen=with_screen)
    return Forgiving(make) if forgives else make()
