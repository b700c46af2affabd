"""CartPole on a machine of the speed that the variable SPEED names: each step takes so much longer than at speed 1."""

import os
import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

ID = "PacedCartPole-v0"
STEP_SECONDS = 0.001  # at speed 1: far more than the step itself, so that other processes of the machine hardly matter
SPEED = float(os.environ.get("SPEED", "1"))


class PacedCartPole(CartPoleEnv):
    """CartPole that waits before each step."""

    def step(self, action: Any) -> Any:
        time.sleep(STEP_SECONDS / SPEED)
        return super().step(action)


gymnasium.register(ID, "tests.trials.paced_cartpole:PacedCartPole", max_episode_steps=500)
