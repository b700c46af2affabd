"""Environments as people write them: `info` may hold anything, arrays are used again, observations are tensors."""

from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Space

from ps_common.errors import SettingsError
from tests.rl_agent.environments.counting_environments import (
    NUMBERS,
    SPACES,
    STEPS,
    Counts,
    Reuses,
    filled,
    steps,
    values_of,
    written,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*WARN")  # Gymnasium's checker warns of most of these environments


EACH_SPACE = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


@EACH_SPACE
@pytest.mark.parametrize("has_masks", [False, True], ids=["", "with masks"])
def test_arrays_that_all_games_use_again_are_copied_at_once(made: Any, space: Space[Any], has_masks: bool) -> None:
    shared, mask = filled(space, 0), np.ones(2, np.int8)

    class Game(Counts):
        def shown(self) -> Any:
            return written(shared, self.number * 50 + self.t)

        def info(self) -> Any:
            mask[:] = self.t % 2, 1
            return {"action_mask": mask} if has_masks else {}

    environments = made(lambda number: Game(space, number))
    first = environments.reset(0)
    before = steps(environments, STEPS - 1)
    last = steps(environments, 1)
    assert values_of(environments, first) == [[0], [50]]
    assert values_of(environments, before.observations) == [[9], [59]]
    assert values_of(environments, last.observations) == [[0], [50]], "the next game"
    assert values_of(environments, last.final_observations) == [[10], [60]], "what the learner bootstraps from"
    if has_masks:
        masks = environments.observations.mask.of(np.stack([before.observations, last.observations]))
        assert masks[:, :, 0].tolist() == [[1, 1], [0, 0]]


@EACH_SPACE
def test_arrays_that_a_vector_environment_uses_again_are_copied_at_once(made: Any, space: Space[Any]) -> None:
    class Vectors(Reuses):
        pass

    Vectors.space = space
    environments = made(Vectors)
    first = environments.reset(0)
    before = steps(environments, STEPS - 1)
    last = steps(environments, 1)
    steps(environments, 3)
    assert values_of(environments, first) == [[0]] * 2
    assert values_of(environments, before.observations) == [[9]] * 2
    assert (before.rewards.tolist(), before.truncated.tolist()) == ([9, 9], [False, False])
    assert values_of(environments, last.observations) == [[0]] * 2
    assert values_of(environments, last.final_observations) == [[10]] * 2
    assert (last.rewards.tolist(), last.truncated.tolist()) == ([10, 10], [True, True])


def test_a_truncated_game_of_a_vector_environment_without_its_last_observation_is_refused(made: Any) -> None:
    class Forgets(Reuses):
        space = NUMBERS

        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:4], {"final_obs": [None] * self.num_envs}

    environments = made(Forgets)
    environments.reset(0)
    with pytest.raises(SettingsError, match=r"^--environment mine:Game: .* truncated.* missing in info\['final_obs'\]"):
        steps(environments, STEPS)
