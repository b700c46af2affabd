"""
Which algorithms and networks fit which environments.

Workers check before they build an agent, and rl-cluster before it starts a process. rl-cluster does not load torch,
which takes seconds, so this file must not import it.
"""

import math
from collections.abc import Sequence

import numpy as np

from ps_common.errors import SettingsError
from ps_common.protocol.names import is_import_path
from ps_common.settings import run_spec
from ps_common.settings.families import OF_FRAMES
from ps_common.settings.run_spec import NetworkSettings, RunSpec
from rl_agent.environments.spaces import (
    MOST_ACTIONS,
    MOST_ELEMENTS,
    ActionSpace,
    BoxActions,
    DiscreteActions,
    ObservationSpace,
    Spaces,
    mask_size,
    mirrored_actions,
)

# The frame size of each convolutional torso; the first of a size is the default.
FRAMES: dict[str, tuple[int, int]] = {
    "conv84": (84, 84),
    "nature84": (84, 84),
    "conv42": (42, 42),
    "shallow40": (40, 40),
    "universe42": (42, 42),
    "conv10": (10, 10),
}
ONE_HOT = "a Discrete is one-hot: show a large one as numbers (a Box, or a MultiDiscrete of its digits)"
LONG_VECTOR = 10_000  # elements: a longer one is one-hot, rather than measured
BY_SIZE: dict[tuple[int, ...], str] = {size: name for name, size in reversed(FRAMES.items())}


def check_agent(run: RunSpec, spaces: Spaces) -> None:
    """Raises SettingsError if the run's algorithm or network does not fit these spaces."""
    check_algorithm(run, spaces)
    check_network(run.network, spaces.observations)


def check_sizes(run: RunSpec, spaces: Spaces) -> None:
    """Raises SettingsError for spaces that are larger than a policy can have."""
    if (elements := math.prod(spaces.observations.shape)) > MOST_ELEMENTS:
        raise SettingsError(
            f"--environment {run.environment.id}: an observation has {elements:,} elements, and a policy sees up to "
            f"{MOST_ELEMENTS:,}; {ONE_HOT}"
        )
    if (actions := mask_size(spaces.actions)) > MOST_ACTIONS:
        raise SettingsError(
            f"--environment {run.environment.id}: it has {actions:,} actions, and a policy has up to {MOST_ACTIONS:,}, "
            "each of which is an output; take a MultiDiscrete of the digits of their numbers, or --actions for some"
        )


def check_algorithm(run: RunSpec, spaces: Spaces) -> None:
    """Raises SettingsError if the run's algorithm does not support the action space or the network."""
    check_sizes(run, spaces)
    if run.network.normalization == "random_play" and run.environment.family not in OF_FRAMES:
        raise SettingsError(
            f"--normalization random_play: has one mean for all channels, which are the last frames of a game in gray; "
            f"those of {run.environment.id} may be colours; remove it"
        )
    if isinstance(run.algorithm, run_spec.A3CSettings):
        check_a3c(run.algorithm, run.network, spaces)
    if not isinstance(run.algorithm, run_spec.Method):
        return
    name, takes = run.algorithm_name, _in_words(spaces.actions)
    if run.algorithm.acts == "real" and not isinstance(spaces.actions, BoxActions):
        raise SettingsError(f"--algorithm {name}: needs real numbers, and {run.environment.id} takes {takes}; use a3c")
    if run.algorithm.acts == "discrete" and not isinstance(spaces.actions, DiscreteActions):
        other = "sac or a3c" if isinstance(spaces.actions, BoxActions) else "a3c"
        raise SettingsError(
            f"--algorithm {name}: needs one discrete action a step, and {run.environment.id} takes {takes}; use {other}"
        )
    if (run.network.lstm or run.network.separate) and not run.algorithm.is_recurrent:
        raise SettingsError(
            f"--algorithm {name}: its network has one torso and no LSTM; leave --lstm and --separate out"
        )


def _in_words(actions: ActionSpace) -> str:
    match actions:
        case BoxActions():
            return "real numbers"
        case DiscreteActions():
            return "one discrete action"
        case _:
            return "several discrete actions"


def check_a3c(algorithm: run_spec.A3CSettings, network: NetworkSettings, spaces: Spaces) -> None:
    """Raises SettingsError if an option of A3C, or of an algorithm derived from it, does not fit network or spaces."""
    if algorithm.epochs > 1 and algorithm.surrogate == "none" and algorithm.off_policy == "none":
        raise SettingsError(
            f"--epochs {algorithm.epochs}: after the first pass the policy is not the one that played; add --surrogate "
            "clip or --off-policy vtrace, which weigh that"
        )
    if algorithm.imitation_weight and network.lstm:
        raise SettingsError("--imitation-weight: remembered steps have no LSTM state; leave it or --lstm out")
    if not algorithm.mirror_images:
        return
    if network.lstm:
        raise SettingsError("--mirror-images: an LSTM's state is not that of the mirrored game; leave it or --lstm out")
    if spaces.observations.parts or len(spaces.observations.shape) != 3:
        raise SettingsError(f"--mirror-images: needs images only, and observations are {spaces.observations}")
    mirrored_actions(spaces.actions)


def check_network(settings: NetworkSettings, observations: ObservationSpace) -> None:
    """Raises SettingsError if the network does not take these observations."""
    kinds = {part.kind for part in observations.parts}
    shapes = [part.shape for part in observations.parts if part.kind == "image"] if kinds else [observations.shape]
    if is_import_path(settings.name):
        shapes = []  # a custom torso says itself what it takes
    for shape in shapes:
        name = torso_name(settings, shape)
        fits = shape[1:] == FRAMES[name] if name in FRAMES else name == "mlp" or len(shape) == 3
        if not fits:
            frames = f"frames of {FRAMES[name]}" if name in FRAMES else "images"
            raise SettingsError(f"--network {name}: needs {frames}, and observations are {observations}")
    if settings.normalization == "random_play" and not (observations.pixels and len(observations.shape) == 3):
        raise SettingsError(f"--normalization random_play: needs frames of pixels, and observations are {observations}")
    has_numbers = any(part.dtype == np.float32 for part in observations.parts) or observations.dtype == np.float32
    if settings.normalization == "running" and not has_numbers:
        raise SettingsError(f"--normalization running: needs numbers, and observations are {observations}")


def torso_name(settings: NetworkSettings, shape: Sequence[int]) -> str:
    """The torso that the settings name, or the default for the shape."""
    if settings.name != "auto":
        return settings.name
    return BY_SIZE.get(tuple(shape)[1:], "conv" if len(shape) == 3 else "mlp")
