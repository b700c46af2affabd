"""
Runs in TOML files: the presets that come with ps-rl, a user's file (--config), and the recipe for an environment alone.

The recipe is one for all environments, and nothing in it is tuned to a game:
- ALE games have the settings of the preset `atari`.
- Everything else has every_environment.toml. Observations decide the rest, in the worker: images have convolutions
  sized to them, vectors have dense layers, and numbers are normalised as they come.
- Rewards are clipped to ±1 on ALE games alone; elsewhere they are divided by the standard deviation of their discounted
  sum.
- Self-imitation excludes an LSTM, so a run with one goes without it.

A preset whose file names no method has the recipe for its environment, with the file's own settings in its place. A
preset that is tuned to its game plays no other.
"""

import contextlib
import itertools
import re
import tomllib
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.messages import Run
from ps_common.protocol.names import as_text
from ps_common.settings.hidden import hidden
from ps_common.settings.kinds import did_you_mean, text_of
from ps_common.settings.regular_file import toml_in
from ps_common.settings.run_settings import (
    flag_of,
    flat_settings,
    run_from_dict,
    with_settings,
)
from ps_common.settings.run_spec import A3CSettings, Environment, RunSpec
from ps_common.settings.table import kinds_of

SETTINGS = "run.toml"  # the file of a run folder that has the settings of its run
DEFAULT_PRESET = "pong"  # of a run that no flag, file or server has decided
FOR_ALE = "atari"  # the preset

# PPO here is A3C with the clipped surrogate, in several epochs of minibatches: PPO, if one worker plays. As in
# Stable-Baselines3, and on ALE games as in its zoo. Its name and its settings stand together.
PPO = "ppo"
IS_PPO: dict[str, Any] = {"algorithm.name": "a3c", "algorithm.surrogate": "clip"}
OF_PPO: dict[str, Any] = IS_PPO | {
    "algorithm.unroll_length": 256,  # with 8 environments 2048 steps
    "algorithm.gae_lambda": 0.95,
    "algorithm.entropy_weight": 0.0,
    "algorithm.gradient_clip": 0.5,
    "algorithm.loss": "mean",
    "algorithm.normalize_advantages": True,
    "algorithm.clip_range": 0.2,
    "algorithm.epochs": 10,
    "algorithm.minibatches": 32,
    "optimizer.name": "adam",
    "optimizer.epsilon": 1e-5,
    "schedule.learning_rate": 3e-4,
    "schedule.anneal_steps": 0,
}
OF_PPO_ON_ALE: dict[str, Any] = OF_PPO | {
    "algorithm.unroll_length": 128,
    "algorithm.entropy_weight": 0.01,
    "algorithm.clip_range": 0.1,
    "algorithm.epochs": 4,
    "algorithm.minibatches": 4,
    "schedule.learning_rate": 2.5e-4,
}


def presets() -> list[str]:
    """Names of the presets that come with ps-rl."""
    return sorted(path.name.removesuffix(".toml") for path in _preset_folder().iterdir() if path.name.endswith(".toml"))


def what_preset_is(name: str) -> str:
    """The first sentence of its file."""
    lines = (_preset_folder() / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    sentences = re.split(r"(?<=\.) (?=[A-Z])", " ".join(line.removeprefix("#").strip() for line in comment))
    return sentences[0]


def load_preset(name: str) -> RunSpec:
    """Raises SettingsError when there is no such preset."""
    if name not in presets():
        meant = did_you_mean(name, presets())
        raise SettingsError(f"--preset {name}: no such preset; {meant}rl-cluster --list shows all of them")
    settings = tomllib.loads((_preset_folder() / f"{name}.toml").read_text(encoding="utf-8"))
    settings = {"preset": name, **settings}
    if "name" in settings.get("algorithm", {}):
        return run_from_dict(settings, source=f"preset {name}")
    recipe = recipe_for(settings["environment"]["id"])
    return with_settings(recipe, flat_settings(settings), source=f"preset {name}")


def load_config(path: Path) -> RunSpec:
    """The run specification in a TOML file. Raises SettingsError that names the file."""
    try:
        settings = toml_in(path)
    except OSError as error:
        raise SettingsError(f"--config {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"--config {path}: not TOML: {error}") from error
    return run_from_dict({"preset": as_text(path.stem), **settings}, source=f"--config {path}")


def settings_as_written(path: Path) -> dict[str, Any]:
    """
    The settings in a run.toml to be shown, without secrets, as another version may have written them; empty if
    unreadable, or no settings.
    """
    with contextlib.suppress(OSError, ValueError, OverflowError):
        settings = toml_in(path)
        msgspec.json.encode(msgspec.convert(settings, Run))  # raises for values that no setting has
        shown: dict[str, Any] = hidden(settings)
        return shown
    return {}


def recipe_for(environment: str, *, algorithm: str | None = None, lstm: str | None = None) -> RunSpec:
    """The run that `--environment ID` starts with these values of --algorithm and --lstm; None: not typed."""
    source = f"--environment {environment}"
    if Environment(id=environment).family == "ale":
        run = with_settings(load_preset(FOR_ALE), {"environment.id": environment}, source=source)
    else:
        recipe = resources.files("ps_common") / "settings" / "every_environment.toml"
        settings = tomllib.loads(recipe.read_text(encoding="utf-8"))
        run = run_from_dict({"environment": {"id": environment}, **settings}, source=source)
        if lstm not in (None, "0"):
            run = with_settings(run, {"algorithm.imitation_weight": 0.0}, source=source)
    run = with_settings(run, {"preset": game_name(environment)}, source=source)
    if algorithm is None:
        return run
    if algorithm == PPO:
        plain = with_settings(run, {"algorithm.name": "one_step_q"}, source=source)  # no setting of the recipe's method
        return with_settings(as_ppo(plain), {"preset": f"{run.preset[:56]}-ppo"}, source=source)
    run = with_settings(run, {"algorithm.name": algorithm}, source="--algorithm")
    usual = getattr(run.algorithm, "recipe", {}) if run.environment.family != "ale" else {}
    return with_settings(run, usual, source=source)


def is_ppo(run: RunSpec) -> bool:
    """Whether `ppo` is a name for its method."""
    return isinstance(run.algorithm, A3CSettings) and run.algorithm.surrogate == "clip"


def as_ppo(run: RunSpec) -> RunSpec:
    """The run by PPO: as it is where it is PPO's already, and else with the usual settings."""
    of_ppo = OF_PPO_ON_ALE if run.environment.family == "ale" else OF_PPO
    return run if is_ppo(run) else with_settings(run, of_ppo, source="--algorithm")


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
        f"{flag_of(key)} {text_of(value)}"
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


def _preset_folder() -> Any:
    return resources.files("ps_common") / "presets"
