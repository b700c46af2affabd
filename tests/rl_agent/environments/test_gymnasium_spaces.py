"""Observations of several parts, action masks, and actions of every supported space."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from ps_common.settings.run_spec import Environment
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import BoxActions, DiscreteActions, MultiDiscreteActions
from rl_agent.networks.custom_network import part_of

NUMBER = Box(-1, 1, (2,), np.float64)
IMAGE = Box(0, 255, (9, 8, 3), np.uint8)


class Shows(gymnasium.Env[Any, Any]):
    """Shows samples of a space, gives a mask in `info` if there is one, ends every second step, and keeps actions."""

    def __init__(self, seen: Space[Any], actions: Space[Any], mask: Any = None) -> None:
        self.observation_space, self.action_space = seen, actions
        self.taken: list[Any] = []
        self._info = {} if mask is None else {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), dict(self._info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        return self.observation_space.sample(), 0.0, len(self.taken) % 2 == 0, False, dict(self._info)


@pytest.fixture
def made() -> Any:
    """Makes environments of a class for the length of a test."""
    opened: list[Environments] = []

    def make(seen: Space[Any], takes: Space[Any], mask: Any = None, **settings: Any) -> Environments:
        gymnasium.register("Shows-v0", lambda: Shows(seen, takes, mask), disable_env_checker=True)
        opened.append(make_environments(Environment(id="Shows-v0", **settings), count=2))
        return opened[-1]

    yield make
    for environments in opened:
        environments.close()
    gymnasium.registry.pop("Shows-v0", None)


def parts_of(environments: Environments, row: Any) -> dict[str, Any]:
    return {part.kind: part.of(row) for part in environments.observations.parts}


def test_an_image_and_numbers_travel_in_one_row_and_are_read_back_exactly(made: Any) -> None:
    seen = Dict(camera=IMAGE, joints=NUMBER, gear=Discrete(3, start=1), lamps=MultiBinary(2))
    environments = made(seen, Discrete(2))
    first = environments.reset(5)
    seen.seed(5)
    sample = seen.sample()
    read = parts_of(environments, first[0])
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(read["image"], sample["camera"].transpose(2, 0, 1))
    gear = np.eye(3)[sample["gear"] - 1]
    expected = np.concatenate(
        [
            {"joints": sample["joints"], "gear": gear, "lamps": sample["lamps"]}[key]
            for key in [key for key in seen.spaces if key != "camera"]
        ]
    )
    np.testing.assert_allclose(read["vector"], expected, rtol=1e-6)


def test_a_part_reads_the_same_as_a_tensor_whatever_axes_come_before(made: Any) -> None:
    environments = made(Tuple((IMAGE, NUMBER, IMAGE)), Discrete(2))
    rows = np.stack([environments.reset(seed) for seed in range(3)])  # [T, B, bytes]
    assert [part.kind for part in environments.observations.parts] == ["vector", "image", "image"]
    for part in environments.observations.parts:
        np.testing.assert_array_equal(part_of(torch.from_numpy(rows), part).numpy(), part.of(rows))
        np.testing.assert_array_equal(part_of(torch.from_numpy(rows)[1:, :1], part).numpy(), part.of(rows)[1:, :1])


def test_last_observations_of_games_are_whole_too(made: Any) -> None:
    environments = made(Dict(camera=IMAGE, joints=NUMBER), Discrete(2))
    environments.reset(1)
    environments.step(np.zeros(2, np.int64))
    stepped = environments.step(np.zeros(2, np.int64))
    assert stepped.final_observations is not None
    for rows in (stepped.final_observations, stepped.observations):
        numbers = parts_of(environments, rows)["vector"]
        assert (np.abs(numbers) <= 1).all()
        assert numbers.any()


@pytest.mark.parametrize(
    ("seen", "shape", "dtype"),
    [
        (Box(0, 255, (40, 30), np.uint8), (1, 40, 30), np.uint8),
        (Box(0, 255, (4, 20, 20, 3), np.uint8), (12, 20, 20), np.uint8),
        (Box(0, 1, (20, 24, 3), np.float32), (3, 20, 24), np.float32),
        (Box(0, 1, (3, 20, 24), np.float64), (3, 20, 24), np.float32),
        (Box(0, 1, (64, 64), np.float32), (1, 64, 64), np.float32),
        (Box(0, 1, (4, 20, 20, 1), np.float64), (4, 20, 20), np.float32),
        (Box(0, 1, (15, 40), np.float32), (600,), np.float32),
        (Box(-9, 9, (2, 3), np.int32), (6,), np.float32),
        (Box(0, 1, (2, 2, 2, 2, 2), np.float32), (32,), np.float32),
        (MultiBinary([2, 3]), (6,), np.float32),
        (Dict(a=NUMBER, b=Tuple((Discrete(2), NUMBER))), (6,), np.float32),
    ],
    ids=str,
)
def test_other_spaces_become_an_image_or_a_vector(made: Any, seen: Space[Any], shape: Any, dtype: Any) -> None:
    environments = made(seen, Discrete(2))
    assert (environments.observations.shape, environments.observations.dtype) == (shape, dtype)
    assert environments.reset(0).shape == (2, *shape)
    assert not environments.observations.parts


@pytest.mark.parametrize(
    ("space", "actions", "native"),
    [
        (MultiDiscrete([2, 3], start=[5, 0]), [[1, 2], [0, 0]], [[6, 2], [5, 0]]),
        (MultiDiscrete([[2, 2], [2, 3]]), [[1, 0, 1, 2]] * 2, [[[1, 0], [1, 2]]] * 2),
        (MultiBinary(3), [[1, 0, 1], [0, 0, 0]], [[1, 0, 1], [0, 0, 0]]),
        (MultiBinary([1, 2]), [[1, 0]] * 2, [[[1, 0]]] * 2),
    ],
    ids=str,
)
def test_several_choices_reach_the_environment_in_its_own_form(
    made: Any, space: Space[Any], actions: Any, native: Any
) -> None:
    environments = made(NUMBER, space)
    assert isinstance(environments.actions, MultiDiscreteActions)
    environments.reset(0)
    environments.step(np.array(actions))
    for (game, _), expected in zip(environments._loop.games, native, strict=True):
        taken = game.unwrapped.taken[0]
        assert space.contains(taken)
        np.testing.assert_array_equal(taken, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.1), (-0.3, 0.1), (0.1, 0.7), (-3.14, 2.7)])
def test_no_rounding_leads_real_actions_out_of_their_space(made: Any, low: float, high: float, dtype: Any) -> None:
    space = Box(dtype(low), dtype(high), (1,), dtype)
    environments = made(NUMBER, space)
    environments.reset(0)
    environments.step(np.array([[-1000.0], [1000.0]], np.float32))
    taken = [game.unwrapped.taken[0] for game, _ in environments._loop.games]
    assert all(space.contains(action) for action in taken), taken
    np.testing.assert_allclose(taken, [space.low, space.high], rtol=1e-6)


def test_random_play_is_uniform_for_the_environment(made: Any) -> None:
    environments = made(NUMBER, Box(np.float32([0, -2]), np.float32([100, 2])))
    assert isinstance(environments.actions, BoxActions)
    sampled = environments.actions.sample(np.random.default_rng(0), 20_000)
    assert sampled.dtype == np.float32
    assert np.isfinite(sampled).all()
    found = np.quantile(environments.actions.native(sampled), [0.1, 0.25, 0.5, 0.75, 0.9], axis=0)
    np.testing.assert_allclose(found / [100, 4] + [0, 0.5], np.repeat([[0.1, 0.25, 0.5, 0.75, 0.9]], 2, 0).T, atol=0.01)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-1, 3, 0), (0.5, 2, 0.5), (-2, -1, -1)],
)
def test_a_masked_number_is_zero_or_the_bound_nearest_to_it(
    made: Any, low: float, high: float, expected: float
) -> None:
    space = Box(np.float32(low), np.float32(high), (1,))
    environments = made(NUMBER, space, np.zeros(1, np.int8))
    forbidden = mask_of(environments, environments.reset(0))
    environments.step(environments.actions.sample(np.random.default_rng(0), 2, np.array(forbidden, np.bool_)))
    assert [game.unwrapped.taken[0].tolist() for game, _ in environments._loop.games] == [[expected]] * 2


# -- masks ------------------------------------------------------------------------------------------------------------


def mask_of(environments: Environments, rows: Any) -> Any:
    mask = environments.observations.mask
    assert mask is not None
    return mask.of(rows).tolist()


@pytest.mark.parametrize("place", ["observation", "info"])
def test_masks_are_found_in_both_places_in_use(made: Any, place: str) -> None:
    allowed = np.array([1, 0, 1], np.int8)
    if place == "info":
        environments = made(NUMBER, Discrete(3), allowed)
        assert mask_of(environments, environments.reset(0)) == [[1, 0, 1]] * 2
        return
    environments = made(Dict(action_mask=MultiBinary(3), seen=NUMBER), Discrete(3))
    masks = [mask_of(environments, environments.reset(seed)) for seed in range(20)]
    assert any(0 in mask for pair in masks for mask in pair)
    assert [part.kind for part in environments.observations.parts] == ["vector", "mask"], "the mask is no number"


@pytest.mark.parametrize(
    ("space", "mask", "usable"),
    [
        (Discrete(2), [0, 0], [1, 1]),
        (MultiDiscrete([2, 2]), [0, 0, 0, 1], [1, 1, 0, 1]),
        (MultiDiscrete([2, 2]), (np.array([0, 1]), np.array([1, 1])), [0, 1, 1, 1]),
        (Box(-1, 1, (2,)), [0, 0], [0, 0]),
    ],
    ids=str,
)
def test_a_choice_without_any_allowed_option_has_all_of_them(
    made: Any, space: Space[Any], mask: Any, usable: list[int]
) -> None:
    environments = made(NUMBER, space, mask if isinstance(mask, tuple) else np.array(mask))
    assert mask_of(environments, environments.reset(0)) == [usable] * 2


def test_random_play_takes_allowed_actions_only() -> None:
    random = np.random.default_rng(0)
    mask = np.array([[True, False, False, True, False]] * 200)
    taken = MultiDiscreteActions((2, 3)).sample(random, 200, mask)
    assert set(map(tuple, taken.tolist())) == {(0, 1)}
    assert set(DiscreteActions(5).sample(random, 200, mask).tolist()) == {0, 3}


@pytest.mark.parametrize("bound", [1.0, 1e30, 1.7e308, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_of_any_bounds_are_played(made: Any, bound: float, dtype: Any) -> None:
    bound = min(bound, float(np.finfo(dtype).max)) if np.isfinite(bound) else bound
    environments = made(NUMBER, Box(-bound, bound, (2,), dtype))
    environments.reset(0)
    actions = environments.actions.sample(np.random.default_rng(0), 2)
    assert np.isfinite(actions).all()
    environments.step(actions)
    within = environments.actions.native(actions)
    assert (within.dtype, np.isfinite(within).all()) == (dtype, True)
