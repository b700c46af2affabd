"""A preset with another game keeps its method and drops the settings of its own game."""

from typing import Any

import pytest

from ps_common.settings.another_game import dropped_in_words, for_another_game, game_name
from ps_common.settings.run_files import load_preset, presets
from ps_common.settings.run_settings import flat_settings, run_from_dict


@pytest.mark.parametrize(
    ("preset", "environment", "name", "left"),
    [
        (
            "pong",
            "ALE/Breakout-v5",
            "pong-on-Breakout-v5",  # its rows, and points that end the return, are Pong's
            {
                "environment.preprocessing": "field40",
                "environment.reward_ends_episode": True,
                "environment.actions": [0, 2, 3],
                "network.name": "shallow40",
                "network.normalization": "random_play",
                "budget.until_return": 18.0,
            },
        ),
        (
            "breakout",  # the same in a mirror, which few games are
            "ALE/Seaquest-v5",
            "breakout-on-Seaquest-v5",
            {"environment.actions": [1, 2, 3], "algorithm.mirror_images": True},
        ),
        ("cartpole", "Acrobot-v1", "cartpole-on-Acrobot-v1", {"budget.until_return": 475.0}),
        ("cartpole", "my.games:Line-v0", "cartpole-on-Line-v0", {"budget.until_return": 475.0}),
        ("atari-a3c-lstm", "ALE/Qbert-v5", "atari-a3c-lstm-on-Qbert-v5", {}),
        (
            "breakout-a3c",  # crops Breakout's field
            "ALE/Pong-v5",
            "breakout-a3c-on-Pong-v5",
            {"environment.preprocessing": "breakout-crop", "network.name": "conv84"},
        ),
        (
            "pong-mlp",  # a vector of what moves, for dense layers
            "ALE/Freeway-v5",
            "pong-mlp-on-Freeway-v5",
            {
                "environment.preprocessing": "pong80",
                "environment.lost_game_reward": -20.0,
                "algorithm.reward_clip": 0.0,  # was off for that reward alone
                "network.name": "mlp",
                "network.hidden": [300],
                "network.value_hidden": [100],
            },
        ),
        (
            "doom-basic",
            "VizdoomTakeCover-v1",
            "doom-basic-on-VizdoomTakeCover-v1",
            {"environment.actions": [3, 2, 1], "environment.max_episode_steps": 300},
        ),
        (
            "doom-basic",  # a step of one tic is none of one frame
            "ALE/Pong-v5",
            "doom-basic-on-Pong-v5",
            {
                "environment.preprocessing": "doom84",
                "environment.frame_skip": 1,
                "environment.frame_stack": 1,
                "environment.actions": [3, 2, 1],
                "environment.max_episode_steps": 300,
                "network.name": "conv84",
                "algorithm.reward_clip": 0.0,
                "algorithm.reward_scale": 0.01,
            },
        ),
        (
            "pong",
            "CartPole-v1",
            "pong-on-CartPole-v1",
            {
                "environment.frame_stack": 2,
                "environment.preprocessing": "field40",
                "environment.reward_ends_episode": True,
                "environment.actions": [0, 2, 3],
                "network.name": "shallow40",
                "network.normalization": "random_play",
                "budget.until_return": 18.0,
                "algorithm.reward_clip": 1.0,
            },
        ),
    ],
)
def test_a_preset_drops_the_settings_of_its_game(
    preset: str, environment: str, name: str, left: dict[str, Any]
) -> None:
    before = load_preset(preset)
    run, left_behind = for_another_game(before, environment)
    assert (run.preset, run.environment.id) == (name, environment)
    assert {key: list(value) if isinstance(value, tuple) else value for key, value in left_behind.items()} == left
    changed = {"preset", "environment.id", *left}
    settings, old = flat_settings(run.to_dict()), flat_settings(before.to_dict())
    assert {key for key in settings if settings[key] != old[key]} == changed, "all else is the recipe"
    family = {"environment": {"id": environment}, "algorithm": run.to_dict()["algorithm"] | {"reward_clip": 0.0}}
    if environment.startswith("ALE/"):
        family["algorithm"]["reward_clip"] = 1.0
    defaults = flat_settings(run_from_dict(family, source="test").to_dict())
    assert all(settings[key] == defaults[key] for key in left)


@pytest.mark.parametrize("preset", presets())
def test_a_preset_on_its_own_game_is_as_it_was(preset: str) -> None:
    run = load_preset(preset)
    assert for_another_game(run, run.environment.id) == (run, {})


@pytest.mark.parametrize("preset", presets())
def test_no_preset_takes_its_target_or_its_actions_to_another_game(preset: str) -> None:
    run, _ = for_another_game(load_preset(preset), "ALE/Seaquest-v5")
    assert (run.budget.until_return, run.environment.actions, run.environment.lost_game_reward) == (None, (), None)
    assert not run.environment.reward_ends_episode


def test_a_run_on_another_game_can_move_on_to_a_third() -> None:
    second, _ = for_another_game(load_preset("pong"), "ALE/Breakout-v5")
    third, _ = for_another_game(second, "ALE/Qbert-v5")
    assert third.preset == "pong-on-Qbert-v5"


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("ALE/Pong-v5", "Pong-v5"),
        ("CartPole-v1", "CartPole-v1"),
        ("my.games:sets/Line-v0", "Line-v0"),
        ("../../etc", "etc"),
        ("a b\n", "a-b"),
        ("", "custom"),
        ("..", "custom"),
        ("x" * 99, "x" * 60),
    ],
)
def test_a_game_is_named_as_a_folder_can_be(environment: str, name: str) -> None:
    assert game_name(environment) == name


def test_the_sentence_on_dropped_settings_names_their_flags() -> None:
    run, left = for_another_game(load_preset("pong"), "ALE/Breakout-v5")
    assert dropped_in_words(run, "pong", left) == (
        "--environment ALE/Breakout-v5: this run is called pong-on-Breakout-v5, and leaves out what belongs to the "
        "game of pong: --preprocessing field40, --reward-ends-episode True, --actions 0 2 3, --network shallow40, "
        "--normalization random_play, --until-return 18.0"
    )
    run, left = for_another_game(load_preset("atari-a3c-lstm"), "ALE/Qbert-v5")
    assert dropped_in_words(run, "atari-a3c-lstm", left) == (
        "--environment ALE/Qbert-v5: this run is called atari-a3c-lstm-on-Qbert-v5"
    )
