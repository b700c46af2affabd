"""
A custom wrapper: it hides the velocities of CartPole, so that an agent has to remember.

    rl-cluster --preset cartpole-a3c-lstm --wrapper examples.wrapper:WithoutVelocities --max-minutes 1
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

POSITIONS = [0, 2]  # of the cart and of the pole; 1 and 3 are their velocities


class WithoutVelocities(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole's observation without its velocities."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        shown = env.observation_space
        assert isinstance(shown, Box), "CartPole's"
        self.observation_space = Box(shown.low[POSITIONS], shown.high[POSITIONS], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        """The part of an observation that the agent sees."""
        return observation[POSITIONS]
