"""A vector environment of one's own, and the masks that it gives."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.custom_environment import in_colour
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


def test_masks_in_the_info_of_a_vector_environment_can_be_ignored() -> None:
    environments = made("masked_in_info", action_mask="none")
    assert environments.reset(0).shape == (2, 2)
    environments.close()


@pytest.mark.parametrize("frame", [np.full((4, 5), 7, np.uint8), np.full((4, 5), 7), np.full((4, 5), 7.1 / 255)])
def test_gray_frames_have_three_channels(frame: Any) -> None:
    shown = in_colour(frame)
    assert (shown.shape, shown.dtype, shown.max()) == ((4, 5, 3), np.uint8, 7)


def test_masks_in_the_observation_of_a_vector_environment_are_read() -> None:
    environments = made("masked_in_both")
    assert environments.observations.mask.of(environments.reset(0)).tolist() == [ALLOWED.tolist()] * 2
    environments.close()


class Ends(VectorEnv[Any, Any, Any]):
    """Each step cuts all games off; their last observations are given together, as other observations are."""

    def __init__(self, num_envs: int, space: Dict | Tuple) -> None:
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.observation_space = space, batch_space(space, num_envs)
        self.single_action_space, self.action_space = Discrete(3), batch_space(Discrete(3), num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._seen(0), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        ended = np.ones(self.num_envs, np.bool_)
        return self._seen(0), np.zeros(self.num_envs), ~ended, ended, {"final_obs": self._seen(1)}

    def _seen(self, number: float) -> Any:
        parts = [np.full((self.num_envs, 2), number + more, np.float32) for more in (0.0, 0.5)]
        return tuple(parts) if isinstance(self.single_observation_space, Tuple) else dict(zip("ab", parts, strict=True))


PART = Box(-9, 9, (2,), np.float32)


def ends_as_a_dict(num_envs: int) -> Ends:
    return Ends(num_envs, Dict(a=PART, b=PART))


def ends_as_a_tuple(num_envs: int) -> Ends:
    return Ends(num_envs, Tuple([PART, PART]))


@pytest.mark.parametrize("name", ["ends_as_a_dict", "ends_as_a_tuple"])
def test_last_observations_of_several_parts_may_be_given_together(name: str) -> None:
    environments = made(name)
    assert environments.reset(0).tolist() == [[0, 0, 0.5, 0.5]] * 2
    stepped = environments.step(np.zeros(2, np.int64))
    assert stepped.final_observations.tolist() == [[1, 1, 1.5, 1.5]] * 2
    environments.close()
