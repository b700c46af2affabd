"""
Which settings of a preset belong to its game, and stay behind when the preset plays another.

A recipe comes along: algorithm, optimizer, schedule, steps. A target score, a subset of actions, a crop of one game's
frames and the name of the run do not. It decides on settings alone and steps no environment.
"""

import re
from typing import Any

from common.settings.run_settings import flag_of, flat_settings, typed, with_settings
from common.settings.run_spec import Environment, RunSpec

OF_THE_GAME = {
    "environment.actions",
    "environment.lost_game_reward",
    "environment.max_episode_steps",
    "budget.until_return",
}
CROPS_OF_ONE_GAME = {"breakout-crop", "pong80"}
# These fit what the preset's game shows: another family of environments, or another preprocessing, shows another thing.
OF_THE_FRAMES = {
    "environment.preprocessing",
    "network.name",
    "network.hidden",
    "network.value_hidden",
    "network.normalization",
}
# A frame skip of Doom means nothing to ALE, and so on.
KEPT_BY_ANOTHER_FAMILY = {"environment.id", "environment.envs"}


def for_another_game(run: RunSpec, environment: str) -> tuple[RunSpec, dict[str, Any]]:
    """
    The run with the environment of this id, and what it leaves behind, flat, with the values that it had.

    The environment that the run has already leaves nothing behind.
    """
    if environment == run.environment.id:
        return run, {}
    moved = with_settings(run, {"environment.id": environment}, source="--environment")
    behind = _left_behind(run.environment, moved.environment)
    defaults = {key: value for key, value in flat_settings(RunSpec().to_dict()).items() if key in behind}
    before = flat_settings(run.to_dict())
    left = {key: before[key] for key, value in defaults.items() if before[key] != value}
    name = f"{_recipe(run)}-on-{game_name(environment)}"
    return with_settings(moved, defaults | {"preset": name}, source="--environment"), left


def game_name(environment: str) -> str:
    """What an environment is called in the name of a run: "ALE/Pong-v5" is Pong-v5, "my_games:Line-v0" is Line-v0."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/:]", environment)[-1]).strip(".-")
    return name[:60] or "custom"


def left_behind_in_words(run: RunSpec, preset: str, left: dict[str, Any]) -> str:
    """One sentence for the user: how the run is called now, and which settings did not come along."""
    flags = ", ".join(f"{flag_of(key)} {typed(value)}" for key, value in left.items())
    without = f", and leaves out what belongs to the game of {preset}: {flags}" if flags else ""
    return f"--environment {run.environment.id}: this run is called {run.preset}{without}"


def _left_behind(old: Environment, new: Environment) -> set[str]:
    """Keys of the settings that take their defaults."""
    if old.family != new.family:
        section = {f"environment.{name}" for name in Environment.__struct_fields__}
        return OF_THE_GAME | OF_THE_FRAMES | section - KEPT_BY_ANOTHER_FAMILY
    return OF_THE_GAME | (OF_THE_FRAMES if old.preprocessing in CROPS_OF_ONE_GAME else set())


def _recipe(run: RunSpec) -> str:
    """The preset's own name, also of a run that plays another game already."""
    return run.preset.removesuffix(f"-on-{game_name(run.environment.id)}")
