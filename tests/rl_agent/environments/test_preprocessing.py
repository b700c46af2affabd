"""Each preprocessing scheme against a slow one written out; and the frame stack at the ends of games."""

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from rl_agent.environments.preprocessing import SCHEMES, FrameStack, breakout_crop, doom42, doom84, field40, pong80

COLOUR = np.random.default_rng(0).integers(0, 256, (2, 210, 160, 3)).astype(np.uint8)
GRAY = np.random.default_rng(1).integers(0, 256, (2, 120, 160)).astype(np.uint8)


def test_breakout_crop_takes_the_nearest_pixels_of_the_field_in_gray() -> None:
    seen = breakout_crop(COLOUR)
    assert (seen.shape, seen.dtype) == ((2, 84, 84), np.uint8)
    field = COLOUR[1, 34:194]
    for row, column in [(0, 0), (83, 83), (1, 82), (40, 3)]:
        red, green, blue = (int(part) for part in field[row * 160 // 84, column * 160 // 84])
        assert seen[1, row, column] == round(0.299 * red + 0.587 * green + 0.114 * blue)


def test_field40_takes_the_means_of_4x4_pixels_of_the_field() -> None:
    frames = np.random.default_rng(2).integers(0, 256, (2, 210, 160)).astype(np.uint8)
    seen = field40(frames)
    assert (seen.shape, seen.dtype) == ((2, 40, 40), np.uint8)
    for row, column in [(0, 0), (39, 39), (1, 38), (20, 3)]:
        block = frames[1, 34 + 4 * row : 38 + 4 * row, 4 * column : 4 * column + 4]
        assert seen[1, row, column] == int(block.astype(int).sum()) // 16


def test_pong80_keeps_what_moves() -> None:
    """The frame of Karpathy's example: cropped, halved, backgrounds erased, everything else 1."""
    frames = np.zeros((1, 210, 160, 3), dtype=np.uint8)
    frames[..., 0] = 144
    frames[0, :35] = frames[0, 195:] = 236  # the score and the wall below
    frames[0, 100:110, :, 0] = 109
    frames[0, 51:55, 20:24, 0] = 213
    seen = pong80(frames)
    assert (seen.shape, seen.dtype) == ((1, 6400), np.float32)
    expected = np.zeros((80, 80))
    expected[8:10, 10:12] = 1
    np.testing.assert_array_equal(seen[0].reshape(80, 80), expected)


@pytest.mark.parametrize(("scheme", "size"), [(doom84, 84), (doom42, 42)])
def test_doom_frames_are_cropped_and_each_pixel_is_the_mean_of_its_area(scheme: object, size: int) -> None:
    assert callable(scheme)
    seen = scheme(GRAY)
    assert (seen.shape, seen.dtype) == ((2, size, size), np.uint8)
    # On a grid so fine that both sizes divide it, an area mean is a plain mean.
    fine = np.repeat(np.repeat(GRAY[1, 10:110, 30:130].astype(float), size, axis=0), size, axis=1)
    expected = fine.reshape(size, 100, size, 100).mean(axis=(1, 3))
    assert np.abs(seen[1] - expected).max() <= 0.51


def numbered(*numbers: int) -> NDArray[np.uint8]:
    """A Doom frame for each number, of that gray."""
    return np.broadcast_to(np.array(numbers, dtype=np.uint8)[:, None, None], (len(numbers), 120, 160))


def grays(observations: NDArray[np.uint8]) -> list[list[int]]:
    assert (observations == observations[..., :1, :1]).all()
    stacks: list[list[int]] = observations[..., 0, 0].tolist()
    return stacks


def test_a_stack_begins_with_the_first_frame_repeated_and_ends_with_the_last() -> None:
    stack = FrameStack(SCHEMES["doom42"], 3)
    going = np.array([False, False])
    assert stack.shape == (3, 42, 42)
    assert grays(stack.reset(numbered(1, 101))) == [[1, 1, 1], [101, 101, 101]]
    seen, final = stack.step(numbered(2, 102), going, None)
    assert grays(seen) == [[1, 1, 2], [101, 101, 102]]
    assert final is None
    held = seen.copy()
    after, final = stack.step(numbered(50, 103), np.array([True, False]), numbered(3, 0))
    assert grays(after) == [[50, 50, 50], [101, 102, 103]]
    assert final is not None
    assert grays(final)[0] == [1, 2, 3]
    assert grays(stack.step(numbered(51, 104), going, None)[0]) == [[50, 50, 51], [102, 103, 104]]
    np.testing.assert_array_equal(seen, held, "a batch that was handed out is the receiver's")
    assert grays(after) == [[50, 50, 50], [101, 102, 103]]


@pytest.mark.parametrize(
    ("scheme", "shape"), [("breakout-crop", (3, 84, 84)), ("field40", (3, 40, 40)), ("pong80", (3 * 6400,))]
)
def test_whole_frames_of_ale_are_stacked_as_a_stack_by_hand(scheme: str, shape: tuple[int, ...]) -> None:
    """Games that end at different steps: lost ones and one cut off. Row by row, with nothing but ALE's frames."""
    settings = Environment(
        id="ALE/Breakout-v5", preprocessing=scheme, frame_stack=3, max_episode_steps=170, life_loss_ends_episode=True
    )  # type: ignore[arg-type]
    count, seed, chance = 3, 5, np.random.default_rng(0)
    environments = make_environments(settings, count=count)
    ale = AtariVectorEnv(
        "breakout",
        num_envs=count,
        img_height=210,
        img_width=160,
        stack_num=1,
        grayscale=SCHEMES[scheme].gray,
        max_num_frames_per_episode=170 * 4,
        reward_clipping=False,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    observe = SCHEMES[scheme].function
    assert observe is not None
    assert environments.observations.shape == shape
    first = observe(ale.reset(seed=seed)[0][:, 0])
    stacks = [[frame] * 3 for frame in first]
    np.testing.assert_array_equal(environments.reset(seed), np.array(stacks).reshape(count, *shape))
    ends = {"terminated": 0, "truncated": 0}
    for _ in range(420):
        actions = chance.integers(4, size=count)
        stepped = environments.step(actions)
        frames, rewards, terminated, truncated, info = ale.step(actions)
        np.testing.assert_array_equal(stepped.rewards, rewards)
        np.testing.assert_array_equal(stepped.terminated, terminated)
        np.testing.assert_array_equal(stepped.truncated, truncated)
        ends["terminated"] += terminated.sum()
        ends["truncated"] += truncated.sum()
        seen = observe(frames[:, 0])
        assert (stepped.final_observations is None) == ("final_obs" not in info)
        for row in range(count):
            if terminated[row] or truncated[row]:
                last = observe(info["final_obs"][row])[0]
                assert stepped.final_observations is not None
                expected = np.array([*stacks[row][1:], last]).reshape(shape)
                np.testing.assert_array_equal(stepped.final_observations[row], expected)
                stacks[row] = [seen[row]] * 3
            else:
                stacks[row] = [*stacks[row][1:], seen[row]]
        np.testing.assert_array_equal(stepped.observations, np.array(stacks).reshape(count, *shape))
    environments.close()
    ale.close()
    assert min(ends.values()) >= 1, ends
