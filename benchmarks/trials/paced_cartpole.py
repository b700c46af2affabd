"""CartPole on a machine of the speed that the variable SPEED names: steps take so much longer than at speed 1."""

import os
import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

ID = "PacedCartPole-v0"
STEP_SECONDS = 0.001  # at speed 1: more than the step itself, so that other processes of the machine matter less
TOGETHER = 16  # steps to one wait: a short one takes longer than it should
SPEED = float(os.environ.get("SPEED", "1"))


class PacedCartPole(CartPoleEnv):
    """CartPole that waits."""

    _steps = 0

    def step(self, action: Any) -> Any:
        self._steps += 1
        if self._steps % TOGETHER == 0:
            time.sleep(TOGETHER * STEP_SECONDS / SPEED)
        return super().step(action)  # type: ignore[no-untyped-call]


gymnasium.register(ID, "benchmarks.trials.paced_cartpole:PacedCartPole", max_episode_steps=500)
