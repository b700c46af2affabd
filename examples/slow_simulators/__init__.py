"""A simulator that takes its time, as a robot or a remote service does: Pendulum that waits in each step."""

import time
from typing import Any

import gymnasium


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, step_seconds: float = 0.02) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.step_seconds = step_seconds

    def step(self, action: Any) -> Any:
        time.sleep(self.step_seconds)
        return self.env.step(action)
