"""Features of ALE games alone: lives, true scores, and a screen that differs from the observation."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from tests.documents.commands import blocks_of

BREAKOUT = Environment(id="ALE/Breakout-v5", noop_max=0, life_loss_ends_episode=True)
FIRE = 1


def lives_of_breakout(steps: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Lives and ends when nothing but FIRE is pressed: [steps + 1] and [steps], straight from ALE."""
    ale = AtariVectorEnv(
        "breakout",
        num_envs=1,
        noop_max=0,
        repeat_action_probability=0.0,
        autoreset_mode=AutoresetMode.SAME_STEP,
        use_fire_reset=True,
    )
    lives, ends = [ale.reset(seed=0)[1]["lives"][0]], []
    for _ in range(steps):
        _, _, terminated, truncated, info = ale.step(np.array([FIRE]))
        lives.append(info["lives"][0])
        ends.append(bool(terminated[0] or truncated[0]))
    ale.close()
    return np.array(lives), np.array(ends)


def test_a_life_loss_is_marked_where_it_happens_and_the_game_goes_on() -> None:
    lives, ends = lives_of_breakout(200)
    environments = make_environments(BREAKOUT, count=1)
    previous = environments.reset(0)
    marks, terminated = [], []
    for _ in range(200):
        stepped = environments.step(np.array([FIRE]))
        assert stepped.return_ended is not None
        marks.append(bool(stepped.return_ended[0]))
        terminated.append(bool(stepped.terminated[0]))
        if marks[-1]:
            np.testing.assert_array_equal(stepped.observations[:, :-1], previous[:, 1:], "the game was reset")
        previous = stepped.observations
    environments.close()
    assert marks == ((np.diff(lives) < 0) & ~ends).tolist()
    assert terminated == ends.tolist()
    first_end = terminated.index(True)
    assert sum(marks[:first_end]) == 4, "Breakout has five balls: four lives are lost, with the fifth goes the game"


def test_a_reward_is_marked_where_it_happens_and_the_game_goes_on() -> None:
    """Pong's right player stands still and loses 21 points: twenty end a return, the last one the game."""
    settings = Environment(id="ALE/Pong-v5", preprocessing="field40", reward_ends_episode=True, noop_max=0)
    environments = make_environments(settings, count=1)
    environments.reset(0)
    rewards, marks, terminated = [], [], []
    while not any(terminated):
        stepped = environments.step(np.array([0]))
        assert stepped.return_ended is not None
        rewards.append(float(stepped.rewards[0]))
        marks.append(bool(stepped.return_ended[0]))
        terminated.append(bool(stepped.terminated[0]))
    environments.close()
    assert sum(rewards) == -21
    assert [*marks[:-1], terminated[-1]] == [reward != 0 for reward in rewards]
    assert not marks[-1], "the end of the game ends its return already"


@pytest.mark.parametrize(("noop_max", "alike"), [(0, True), (30, False)])
def test_no_ops_make_games_start_apart(noop_max: int, alike: bool) -> None:
    """The cars move from the first frame on, so a start shows how long it waited."""
    settings = Environment(id="ALE/Freeway-v5", preprocessing="atari42", noop_max=noop_max)
    environments = make_environments(settings, count=3)
    starts = environments.reset(0)
    environments.close()
    assert (len({start.tobytes() for start in starts}) == 1) == alike


@pytest.mark.parametrize(("fire_on_reset", "lives_lost"), [(True, 1), (False, 0)])
def test_fire_is_pressed_for_the_agent_where_the_game_waits_for_it(fire_on_reset: bool, lives_lost: int) -> None:
    """An agent that does nothing in Breakout loses the one ball that was served, or none."""
    settings = Environment(id="ALE/Breakout-v5", noop_max=0, life_loss_ends_episode=True, fire_on_reset=fire_on_reset)
    environments = make_environments(settings, count=1)
    environments.reset(0)
    marks = [environments.step(np.array([0])).return_ended for _ in range(100)]
    environments.close()
    assert sum(int(mark.sum()) for mark in marks if mark is not None) == lives_lost


def test_sticky_actions_repeat_the_previous_one_by_chance() -> None:
    def observations(sticky: float) -> NDArray[np.generic]:
        settings = Environment(id="ALE/Pong-v5", preprocessing="atari42", noop_max=0, sticky_actions=sticky)
        environments = make_environments(settings, count=1)
        environments.reset(0)
        seen = [environments.step(np.array([2 + step % 2])).observations for step in range(30)]
        environments.close()
        return np.array(seen)

    np.testing.assert_array_equal(observations(0.0), observations(0.0))
    assert (observations(0.0) != observations(0.25)).any()


def test_a_gray_scheme_of_whole_frames_has_screens_in_colour_of_the_same_game() -> None:
    settings = Environment(id="ALE/Pong-v5", preprocessing="field40", sticky_actions=0.25)
    environments = make_environments(settings, count=2, with_screen=True)
    environments.reset(3)
    for step in range(40):
        seen = environments.step(np.array([2 + step % 2, 0])).observations[0, -1]
    screen = environments.screen()
    environments.close()
    assert (screen.shape, screen.dtype) == ((210, 160, 3), np.dtype(np.uint8))
    gray = (screen @ np.array([0.299, 0.587, 0.114]))[34:194].reshape(40, 4, 40, 4).mean(axis=(1, 3))
    # ALE takes the brighter of two frames in each colour, or in gray: a moving paddle differs by 16, a ball by 70.
    assert np.abs(gray - seen).max() < 25


@pytest.mark.parametrize("game", ["Pong", "SpaceInvaders", "Freeway"])
def test_the_wrapper_on_the_page_of_environments_makes_the_frames_of_a_run(game: str) -> None:
    """Space Invaders draws some things in every other frame, Freeway has no FIRE, Pong is the game on the page."""
    (block,) = [block for block in blocks_of("docs/ENVIRONMENTS.md") if block.kind == "python"]
    page: dict[str, Any] = {}
    exec(block.text.replace("ALE/Pong-v5", f"ALE/{game}-v5"), page)
    alone: gymnasium.Env[Any, Any] = page["game"]
    settings = Environment(id=f"ALE/{game}-v5", preprocessing="field40", frame_stack=1, noop_max=0)
    environments = make_environments(settings, count=1)
    shown = environments.reset(0)
    np.testing.assert_array_equal(page["field"], shown[0, 0])
    for action in np.random.default_rng(1).integers(0, environments.actions.count, 500):  # type: ignore[union-attr]
        frame, reward, terminated, *_ = alone.step(int(action))
        stepped = environments.step(action[None])
        assert (reward, terminated) == (stepped.rewards[0], stepped.terminated[0])
        if terminated:
            break
        page["frame"] = frame
        exec(block.text.splitlines()[-1], page)
        np.testing.assert_array_equal(page["field"], stepped.observations[0, 0])
    environments.close()
    alone.close()


@pytest.mark.parametrize("random", [{"noop_max": 30}, {"noop_max": 0, "sticky_actions": 0.25}], ids=str)
def test_games_without_a_seed_differ_and_a_rom_is_loaded_again_for_sticky_actions_alone(
    random: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int | None] = []
    reset = AtariVectorEnv.reset

    def noted(env: AtariVectorEnv, *, seed: int | None = None) -> Any:
        seeds.append(seed)
        return reset(env, seed=seed)

    monkeypatch.setattr(AtariVectorEnv, "reset", noted)
    seen = []
    for _ in range(2):
        environments = make_environments(Environment(id="ALE/Pong-v5", **random), count=4)
        for _ in range(2):
            environments.reset(None)
            taken = np.random.default_rng(0).integers(0, 6, 60)
            steps = [environments.step(np.full(4, action)).observations for action in taken]
            seen += [np.array([step[game, -1] for step in steps]).tobytes() for game in range(4)]
        environments.close()
    assert len(set(seen)) > 8, "few of 16 games are the same, of which there are 30 with no-ops alone"
    assert [seed is not None for seed in seeds] == [random["noop_max"] == 0, False] * 2
