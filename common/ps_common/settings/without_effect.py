"""
Settings that do nothing beside the run's others. A user who types one believes in something that the run does not have.

This file decides by settings alone: it knows no spaces of an environment.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ps_common.errors import SettingsError
from ps_common.settings.run_settings import flag_of
from ps_common.settings.run_spec import NO_ENVIRONMENT, A3CSettings, RunSpec

Needs = tuple[Callable[[RunSpec], bool], str]  # whether the setting does something, and what it needs for that


def _of_a3c(has_effect: Callable[[A3CSettings], bool]) -> Callable[[RunSpec], bool]:
    """A rule for A3C alone: only another method itself knows what its settings of the same names do."""
    return lambda run: not isinstance(run.algorithm, A3CSettings) or has_effect(run.algorithm)


ALE: Needs = (lambda run: run.environment.family == "ale", "an ALE game")
FRAMES: Needs = (lambda run: run.environment.family in ("ale", "doom"), "an ALE game or ViZDoom")
DOOM: Needs = (lambda run: run.environment.family == "doom", "ViZDoom")
SEPARATE: Needs = (lambda run: run.network.separate, "--separate")
LSTM: Needs = (lambda run: run.network.lstm > 0, "--lstm")
SLACK: Needs = (lambda run: run.consistency.rule in ("ssp", "paced"), "--consistency ssp or paced")
CLIP: Needs = (_of_a3c(lambda a3c: a3c.surrogate == "clip"), "--surrogate clip")
IMITATION: Needs = (_of_a3c(lambda a3c: a3c.imitation_weight > 0), "--imitation-weight")
ANNEALING: Needs = (_of_a3c(lambda a3c: a3c.entropy_anneal_steps > 0), "--entropy-anneal-steps")
# Each with the values that ask for nothing.
WHAT_THEY_NEED: Mapping[str, tuple[Needs, tuple[Any, ...]]] = {
    "environment.frame_skip": (FRAMES, (1,)),
    "environment.frame_stack": (FRAMES, (1,)),
    "environment.sticky_actions": (ALE, (0.0,)),
    "environment.noop_max": (ALE, (0,)),
    "environment.fire_on_reset": (ALE, (False,)),
    "environment.life_loss_ends_episode": (ALE, (False,)),
    "environment.reward_ends_episode": (ALE, (False,)),
    "environment.start_tic": (DOOM, (0,)),
    "environment.decals_and_particles": (DOOM, (True,)),
    "network.value_hidden": (SEPARATE, ((),)),
    "network.lstm_forget_bias": (LSTM, (0.0,)),
    "consistency.slack": (SLACK, ()),
    "algorithm.clip_range": (CLIP, ()),
    "algorithm.imitation_samples": (IMITATION, ()),
    "algorithm.imitation_capacity": (IMITATION, ()),
    "algorithm.final_entropy_weight": (ANNEALING, ()),
}


def check_effects(run: RunSpec, typed: Mapping[str, Any]) -> None:
    """Raises SettingsError if one of the `typed` settings of the run, flat, does nothing in it."""
    for key, value in typed.items():
        if key not in WHAT_THEY_NEED or (key.startswith("environment.") and run.environment.id == NO_ENVIRONMENT):
            continue
        (has_effect, needed), nothing = WHAT_THEY_NEED[key]
        value = tuple(value) if isinstance(value, list) else value
        if value not in nothing and not has_effect(run):
            here = f" with {run.environment.id}" if key.startswith("environment.") else ""
            raise SettingsError(f"{flag_of(key)}: does nothing here{here}, since it needs {needed}; leave it out")
