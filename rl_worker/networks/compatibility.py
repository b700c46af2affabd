"""
Which algorithms and networks fit which environments.

Workers check before they build an agent, and rl-cluster before it starts a process. rl-cluster does not load torch,
which takes seconds, so this file must not import it.
"""

from collections.abc import Sequence

import numpy as np

from common.errors import SettingsError
from common.settings import run_spec
from common.settings.run_spec import Network, RunSpec
from rl_worker.environments.interface import DiscreteActions, Environments

# The frame size of each convolutional torso.
FRAMES: dict[str, tuple[int, int]] = {
    "conv84": (84, 84),
    "nature84": (84, 84),
    "conv42": (42, 42),
    "universe42": (42, 42),
    "conv10": (10, 10),
}
BY_SIZE: dict[tuple[int, ...], str] = {(84, 84): "conv84", (42, 42): "conv42", (10, 10): "conv10"}


def check_agent(run: RunSpec, environments: Environments) -> None:
    """Raises SettingsError if the run's algorithm or network does not fit these environments."""
    check_algorithm(run, environments)
    pixels = environments.observation_dtype == np.uint8
    check_network(run.network, environments.observation_shape, pixels=pixels)


def check_algorithm(run: RunSpec, environments: Environments) -> None:
    """Raises SettingsError if the run's algorithm does not support the action space or the network."""
    if isinstance(run.algorithm, run_spec.A3CSettings):
        return
    name = type(run.algorithm).__struct_config__.tag
    if not isinstance(environments.actions, DiscreteActions):
        raise SettingsError(
            f"--algorithm {name}: needs discrete actions, and those of {run.environment.id} are continuous; use a3c"
        )
    if run.network.lstm or run.network.separate:
        raise SettingsError(
            f"--algorithm {name}: its network has one torso and no LSTM; leave --lstm and --separate out"
        )


def check_network(settings: Network, shape: Sequence[int], *, pixels: bool) -> None:
    """Raises SettingsError if the network does not take observations of this shape; `pixels` are uint8."""
    shape = tuple(shape)
    name = torso_name(settings, shape)
    if name in FRAMES and shape[1:] != FRAMES[name]:
        raise SettingsError(f"--network {name}: needs frames of {FRAMES[name]}, and observations are {shape}")
    if settings.normalization == "random_play" and (not pixels or len(shape) != 3):
        raise SettingsError(f"--normalization random_play: needs frames of pixels, and observations are {shape}")
    if settings.normalization == "running" and (pixels or len(shape) != 1):
        raise SettingsError(f"--normalization running: needs vectors, and observations are {shape}")


def torso_name(settings: Network, shape: Sequence[int]) -> str:
    """The torso that the settings name, or the default for the shape."""
    return settings.name if settings.name != "auto" else BY_SIZE.get(tuple(shape)[1:], "mlp")
