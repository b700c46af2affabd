"""
Environments that may fail: an exception of step() or reset() costs a game, and not the run.

The environment that has failed is closed, and another is made. Its game is truncated at its last observation, so that
its steps are learned from; its score is not counted, because the game was not played to its end. A simulator that fails
too often ends the worker, with the reason (failures.py).
"""

from collections.abc import Callable
from typing import Any

import gymnasium

from ps_common.errors import PsRlError
from ps_common.program.reasons import reason_of
from rl_agent.environments.interface import close_logged

FAILURES = "ps_rl_failures"  # key of info: sentences
MOST_TRIES = 3  # of making and resetting an environment, one after another


class Forgiving(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One environment, and how another is made in its place."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        super().__init__(make())
        self._make = make
        self._is_broken = False
        self._seen: Any = None
        self._failures: list[str] = []  # that nobody was told of

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Raises what the environment raises after MOST_TRIES failures in a row."""
        for attempt in range(1, MOST_TRIES + 1):
            try:
                if self._is_broken:
                    close_logged(self.env)
                    self.env = self._make()
                    self._is_broken = False
                self._seen, info = self.env.reset(seed=seed, options=options)
                return self._seen, self._told(info)
            except PsRlError:
                raise
            except Exception as error:
                if attempt == MOST_TRIES:
                    raise
                self._fails("reset", error)
        raise AssertionError("the last try returns or raises")

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            self._seen, reward, terminated, truncated, info = self.env.step(action)
            return self._seen, reward, terminated, truncated, info
        except PsRlError:
            raise
        except Exception as error:
            self._fails("step", error)
            return self._seen, 0.0, False, True, self._told({})

    def _fails(self, where: str, error: Exception) -> None:
        self._is_broken = True
        self._failures.append(f"{where}() raised {reason_of(error)}")

    def _told(self, info: dict[str, Any]) -> dict[str, Any]:
        failures, self._failures = self._failures, []
        return {**info, FAILURES: failures} if failures else info
