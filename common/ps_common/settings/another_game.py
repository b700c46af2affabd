"""
Which settings of a preset belong to its game, and take their defaults when the preset plays another game.

Algorithm, optimizer, schedule and budget of steps stay. A target score, a subset of actions, a crop of one game's
frames and the name of the run do not. This file decides by settings alone and steps no environment.
"""

import re
from typing import Any

from ps_common.settings.run_settings import flag_of, flat_settings, run_from_dict, typed, with_settings
from ps_common.settings.run_spec import Environment, RunSpec

OF_THE_GAME = {
    "environment.actions",
    "environment.lost_game_reward",
    "environment.reward_ends_episode",
    "environment.max_episode_steps",
    "algorithm.mirror_images",
    "budget.until_return",
}
CROPS_OF_ONE_GAME = {"breakout-crop", "field40", "pong80"}
# These fit the observations of the preset's game. Another family of environments, or preprocessing, has others.
OF_THE_FRAMES = {
    "environment.preprocessing",
    "network.name",
    "network.hidden",
    "network.value_hidden",
    "network.normalization",
}
OF_THE_REWARDS = {"algorithm.reward_clip", "algorithm.reward_scale"}  # of another family, or without the lost game's
# A frame skip of Doom means nothing to ALE, and so on.
KEPT_BY_ANOTHER_FAMILY = {"environment.id", "environment.envs"}


def for_another_game(run: RunSpec, environment: str) -> tuple[RunSpec, dict[str, Any]]:
    """
    The run with the environment of this id, and the dropped settings, flat, with their former values.

    With the run's own environment nothing is dropped.
    """
    if environment == run.environment.id:
        return run, {}
    moved = with_settings(run, {"environment.id": environment}, source="--environment")
    to_drop = _dropped(run.environment, moved.environment)
    sections = {"environment": {"id": environment}, "algorithm": {"name": run.algorithm_name}}
    default = run_from_dict(sections, source="--environment")
    defaults = {key: value for key, value in flat_settings(default.to_dict()).items() if key in to_drop}
    before = flat_settings(run.to_dict())
    dropped = {key: before[key] for key, value in defaults.items() if before[key] != value}
    name = f"{_recipe(run)}-on-{game_name(environment)}"
    return with_settings(moved, defaults | {"preset": name}, source="--environment"), dropped


def game_name(environment: str) -> str:
    """An environment's name in that of a run: Pong-v5 for "ALE/Pong-v5", Line-v0 for "my_games:Line-v0"."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/:]", environment)[-1]).strip(".-")
    return name[:60] or "custom"


def dropped_in_words(run: RunSpec, preset: str, dropped: dict[str, Any]) -> str:
    """One sentence for the user: the run's new name, and the dropped settings."""
    flags = ", ".join(f"{flag_of(key)} {typed(value)}" for key, value in dropped.items())
    without = f", and leaves out what belongs to the game of {preset}: {flags}" if flags else ""
    return f"--environment {run.environment.id}: this run is called {run.preset}{without}"


def _dropped(old: Environment, new: Environment) -> set[str]:
    """Keys of the settings that are dropped."""
    if old.family != new.family:
        section = {f"environment.{name}" for name in Environment.__struct_fields__}
        return OF_THE_GAME | OF_THE_FRAMES | OF_THE_REWARDS | section - KEPT_BY_ANOTHER_FAMILY
    frames = OF_THE_FRAMES if old.preprocessing in CROPS_OF_ONE_GAME else set()
    return OF_THE_GAME | frames | (OF_THE_REWARDS if old.lost_game_reward is not None else set())


def _recipe(run: RunSpec) -> str:
    """The preset's own name, also for a run that plays another game already."""
    return run.preset.removesuffix(f"-on-{game_name(run.environment.id)}")
