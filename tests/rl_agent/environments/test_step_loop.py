"""Environments as people write them: `info` may hold anything, arrays are used again, observations are tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Space

from ps_common.errors import SettingsError
from rl_eval.games import play
from rl_eval.scores import RandomPlay
from tests.rl_agent.environments.counting_environments import (
    NUMBERS,
    PICTURE,
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


INFOS: dict[str, Callable[[Counts], Any]] = {
    "a number or None": lambda game: {"winner": 1 if game.t % 2 else None},
    "a number or text": lambda game: {"reason": 0 if game.t % 3 else "goal"},
    "an array that grows": lambda game: {"path": np.zeros((game.t, 2))},
    "a dict or a number": lambda game: {"state": {"deep": game.t} if game.t % 2 else game.t},
    "another type in each environment": lambda game: {"me": [1.5, "b", None][game.number]},
    "what vector layers write themselves": lambda game: {"final_obs": game.t, "_final_obs": None, "_x": 1, "x": "a"},
    "keys that are no text": lambda game: {1: game.t, None: "x", (2,): {}},
    "tensors and objects": lambda game: {"hidden": torch.zeros(game.t), "self": game},
}


@pytest.mark.parametrize("info", INFOS.values(), ids=INFOS)
def test_info_may_hold_anything(made: Any, info: Callable[[Counts], Any]) -> None:
    class Game(Counts):
        def info(self) -> Any:
            return info(self)

    environments = made(lambda number: Game(NUMBERS, number), count=3)
    environments.reset(0)
    stepped = steps(environments, STEPS)
    assert values_of(environments, stepped.observations) == [[0], [50], [100]]
    assert stepped.rewards.tolist() == [STEPS] * 3
    assert stepped.truncated.all()


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


def as_tensors(shown: Any) -> Any:
    match shown:
        case dict():
            return {name: as_tensors(part) for name, part in shown.items()}
        case tuple():
            return tuple(map(as_tensors, shown))
    return torch.from_numpy(shown.copy())


class Tensors(Counts):
    """Shows tensors, and gives numbers and flags as tensors or arrays of one."""

    def shown(self) -> Any:
        return as_tensors(super().shown())

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        if self.number:
            return seen, np.array([reward]), np.array([terminated]), np.array([truncated]), info
        return seen, torch.tensor(reward), torch.tensor(terminated), torch.tensor(truncated), info


@EACH_SPACE
def test_torch_tensors_are_observations_too(made: Any, space: Space[Any]) -> None:
    environments = made(lambda number: Tensors(space, number))
    assert values_of(environments, environments.reset(0)) == [[0], [50]]
    stepped = steps(environments, STEPS)
    assert values_of(environments, stepped.final_observations) == [[10], [60]]
    assert (stepped.rewards.tolist(), stepped.truncated.tolist()) == ([10, 10], [True, True])


@pytest.mark.parametrize("space", [NUMBERS, PICTURE], ids=str)
def test_a_vector_environment_may_show_tensors(made: Any, space: Space[Any]) -> None:
    class Vectors(Reuses):
        as_shown = staticmethod(torch.from_numpy)

    Vectors.space = space
    environments = made(Vectors)
    environments.reset(0)
    stepped = steps(environments, 3)
    assert (values_of(environments, stepped.observations), stepped.rewards.tolist()) == ([[3]] * 2, [3, 3])


@EACH_SPACE
def test_games_are_evaluated_alike_whether_arrays_are_used_again_or_not(made: Any, space: Space[Any]) -> None:
    shared = filled(space, 0)

    class Game(Counts):
        def shown(self) -> Any:
            return written(shared, self.number * 50 + self.t)

    def played(game: type[Counts]) -> list[str]:
        environments = made(lambda number: game(space, number))
        actor = RandomPlay(environments, seed=0)
        return [one.trace for one in play(actor, environments, episodes=6, greedy=False, seed=0)]

    assert played(Game) == played(Counts)
