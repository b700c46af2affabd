"""A simulator whose step takes 20 ms: Pendulum that sleeps."""

import time
from typing import Any

import gymnasium

STEP_SECONDS = 0.020


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Its step takes STEP_SECONDS longer."""

    def step(self, action: Any) -> Any:
        time.sleep(STEP_SECONDS)
        return self.env.step(action)


def make() -> gymnasium.Env[Any, Any]:
    return Slow(gymnasium.make("Pendulum-v1"))
