"""
The settings that a run starts from when only an environment is named: one recipe for all, and nothing tuned to a game.
A preset that is tuned to its game plays no other.

- ALE games have the settings of the preset `atari`.
- Everything else has RECIPE. Observations decide the rest, in the worker: images have convolutions sized to them,
  vectors have dense layers, and numbers are normalised as they come.
- Rewards are clipped to ±1 on ALE games alone; elsewhere they are divided by the deviation of their discounted sum.

The recipe is Schulman et al. 2017 (PPO) with the details that mattered in Engstrom et al. 2020 and Andrychowicz et al.
2021: normalised observations, returns and advantages, GAE, several epochs of minibatches, Adam with an annealed rate.
Self-imitation is for goals that chance reaches only a few times: without it a third of the runs never learn
MountainCarContinuous, where they stand still before they have climbed the hill often enough. Self-imitation excludes an
LSTM, so a run with one goes without it. Few steps are remembered, because an observation may be a whole screen.
"""

import re
from collections.abc import Collection
from typing import Any

from ps_common.errors import SettingsError
from ps_common.settings.run_files import load_preset
from ps_common.settings.run_settings import flag_of, flat_settings, run_from_dict, typed, with_settings
from ps_common.settings.run_spec import ActionValuesSettings, Environment, RunSpec
from ps_common.settings.table import kinds_of

FOR_ALE = "atari"  # the preset

RECIPE: dict[str, Any] = {
    "algorithm": {
        "name": "a3c",
        "unroll_length": 64,
        "discount": 0.99,
        "gae_lambda": 0.95,
        "reward_normalization": "returns",
        "entropy_weight": 0.003,
        "gradient_clip": 0.5,
        "loss": "mean",
        "normalize_advantages": True,
        "surrogate": "clip",
        "clip_range": 0.2,
        "epochs": 5,
        "minibatches": 4,
        "imitation_weight": 0.1,
        "imitation_capacity": 2048,
    },
    "network": {"normalization": "auto"},
    "optimizer": {"name": "adam", "epsilon": 1e-5},
    "schedule": {"learning_rate": 1e-3, "final_learning_rate": 1e-4, "anneal_steps": 1_000_000},
}
# Of the methods that learn action values, where --algorithm names one.
OF_ACTION_VALUES: dict[str, Any] = {
    "algorithm.unroll_length": 16,
    "algorithm.reward_normalization": "returns",
    "algorithm.target_interval": 2000,
    "algorithm.epsilon_anneal_steps": 100_000,
    "algorithm.gradient_clip": 1.0,
    "algorithm.loss": "mean",
}


def recipe_for(environment: str, *, algorithm: str | None = None, lstm: str | None = None) -> RunSpec:
    """The run that `--environment ID` starts beside these values of --algorithm and --lstm; None: not typed."""
    source = f"--environment {environment}"
    if Environment(id=environment).family == "ale":
        run = with_settings(load_preset(FOR_ALE), {"environment.id": environment}, source=source)
    else:
        run = run_from_dict({"environment": {"id": environment}, **RECIPE}, source=source)
        if lstm not in (None, "0"):
            run = with_settings(run, {"algorithm.imitation_weight": 0.0}, source=source)
    run = with_settings(run, {"preset": game_name(environment)}, source=source)
    if algorithm is None:
        return run
    run = with_settings(run, {"algorithm.name": algorithm}, source="--algorithm")
    return with_settings(run, OF_ACTION_VALUES, source=source) if _learns_values_of_numbers(run) else run


def on_another_game(run: RunSpec, environment: str, overrides: Collection[str], *, source: str) -> RunSpec:
    """
    The run of a preset or file with another environment. Raises SettingsError if that is another game, and the run has
    settings that belong to its own and are not overridden; or is of another family, whose observations are others.
    """
    moved = with_settings(run, {"environment.id": environment}, source=source)
    if game_name(environment) == game_name(run.environment.id):
        return moved
    defaults = flat_settings(run_from_dict({"algorithm": {"name": run.algorithm_name}}, source=source).to_dict())
    tuned = [
        f"{flag_of(key)} {typed(value)}"
        for key, value in flat_settings(run.to_dict()).items()
        if key not in overrides and _belongs_to_its_game(key, value, defaults.get(key))
    ]
    if tuned or moved.environment.family != run.environment.family:
        alone = f"--environment {environment}"
        use = f"--preset {FOR_ALE} {alone}" if moved.environment.family == "ale" else f"{alone} without {source}"
        why = f"{run.preset} is for {run.environment.id}" + (f" ({', '.join(tuned)})" if tuned else "")
        raise SettingsError(f"{source} {alone}: {why}; use {use}")
    return with_settings(moved, {"preset": f"{run.preset}-on-{game_name(environment)}"}, source=source)


def _belongs_to_its_game(setting: str, value: Any, default: Any) -> bool:
    values = kinds_of(setting).of_a_game
    return values is not None and value != default and (not values or value in values)


def game_name(environment: str) -> str:
    """An environment's name in that of a run: Pong-v5 for "ALE/Pong-v5", Line-v0 for "my_games:Line-v0"."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", re.split(r"[/:]", environment)[-1]).strip(".-")
    return name[:60] or "custom"


def recipe_in_words(environment: str) -> str:
    """One sentence for the user."""
    settings = f"those of {FOR_ALE}" if Environment(id=environment).family == "ale" else "those for every environment"
    return f"--environment {environment} without --preset: settings that are not typed are {settings}"


def _learns_values_of_numbers(run: RunSpec) -> bool:
    return isinstance(run.algorithm, ActionValuesSettings) and run.environment.family != "ale"
