"""
Which algorithms and networks fit which environments.

Workers build nothing that does not fit, and rl-cluster starts nothing: it asks here without the seconds that torch
takes to load, so torch must not be imported.
"""

from collections.abc import Sequence

import numpy as np

from common.errors import SettingsError
from common.settings import run_spec
from common.settings.run_spec import Network, RunSpec
from rl_worker.environments.interface import DiscreteActions, Environments

# The size of the frames that a torso of convolutions is for.
FRAMES: dict[str, tuple[int, int]] = {
    "conv84": (84, 84),
    "nature84": (84, 84),
    "conv42": (42, 42),
    "universe42": (42, 42),
    "conv10": (10, 10),
}
BY_SIZE: dict[tuple[int, ...], str] = {(84, 84): "conv84", (42, 42): "conv42", (10, 10): "conv10"}


def check_agent(run: RunSpec, environments: Environments) -> None:
    """Raises SettingsError when the run's algorithm or network cannot learn in these environments."""
    check_algorithm(run, environments)
    pixels = environments.observation_dtype == np.uint8
    check_network(run.network, environments.observation_shape, pixels=pixels)


def check_algorithm(run: RunSpec, environments: Environments) -> None:
    """Raises SettingsError when the run's algorithm has no use for the actions, or for the network."""
    if isinstance(run.algorithm, run_spec.A3CSettings):
        return
    name = type(run.algorithm).__struct_config__.tag
    if not isinstance(environments.actions, DiscreteActions):
        raise SettingsError(
            f"--algorithm {name}: needs a choice of actions, and {run.environment.id} has real vectors; a3c takes both"
        )
    if run.network.lstm or run.network.separate:
        raise SettingsError(
            f"--algorithm {name}: its network has no memory and one torso; leave --lstm, --separate out"
        )


def check_network(settings: Network, shape: Sequence[int], *, pixels: bool) -> None:
    """Raises SettingsError when observations of this shape are not what the network is for; pixels are uint8."""
    shape = tuple(shape)
    name = torso_name(settings, shape)
    if name in FRAMES and shape[1:] != FRAMES[name]:
        raise SettingsError(f"--network {name}: is for frames of {FRAMES[name]}, and observations are {shape}")
    if settings.normalization == "random_play" and (not pixels or len(shape) != 3):
        raise SettingsError(f"--normalization random_play: is for frames of pixels, and observations are {shape}")
    if settings.normalization == "running" and (pixels or len(shape) != 1):
        raise SettingsError(f"--normalization running: is for vectors, and observations are {shape}")


def torso_name(settings: Network, shape: Sequence[int]) -> str:
    """The torso that the settings name, or that fits the shape."""
    return settings.name if settings.name != "auto" else BY_SIZE.get(tuple(shape)[1:], "mlp")
