"""A vector environment of one's own, and the masks that it gives."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments

ALLOWED = np.array([1, 0, 1], np.int8)


class Shows(gymnasium.Env[Any, Any]):
    """Gives masks in `info`, or in its observation too."""

    action_space = Discrete(3)

    def __init__(self, in_observation: bool) -> None:
        seen = Box(-1, 1, (2,), np.float32)
        self._in_observation = in_observation
        self.observation_space: Any = Dict(seen=seen, action_mask=MultiBinary(3)) if in_observation else seen

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        seen = np.zeros(2, np.float32)
        shown = {"seen": seen, "action_mask": ALLOWED} if self._in_observation else seen
        return shown, {"action_mask": ALLOWED}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        shown, info = self.reset()
        return shown, 0.0, False, False, info


def masked_in_info(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Shows(in_observation=False)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def masked_in_both(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Shows(in_observation=True)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def made(name: str, **settings: Any) -> Any:
    return make_environments(Environment(id=f"{__name__}:{name}", **settings), count=2)


def test_masks_in_the_info_of_a_vector_environment_are_refused_and_not_left_unread() -> None:
    environments = made("masked_in_info")
    with pytest.raises(SettingsError, match=r"^--environment .*:masked_in_info: .* in `info`.*; put action_mask into"):
        environments.reset(0)
    environments.close()


def test_masks_in_the_observation_of_a_vector_environment_are_read() -> None:
    environments = made("masked_in_both")
    assert environments.observations.mask.of(environments.reset(0)).tolist() == [ALLOWED.tolist()] * 2
    environments.close()
