"""A user's own torso, `--network my_pkg:MyTorso`: what it must be, and how it is made from its import path."""

from typing import Protocol

import torch
from torch import Tensor, nn

from common.errors import SettingsError
from common.settings.run_spec import Network
from rl_worker.environments.imports import own_part
from rl_worker.environments.spaces import ObservationSpace

NEEDED = (
    "a torso is a class of torch.nn.Module, made with (observations, settings), that has `features`, the width of its "
    "output"
)


class OwnTorso(Protocol):
    """
    The instances of such a class, which are nn.Modules. LSTM and heads of ps-rl follow the torso.

    The class is made with two arguments: `observations`, the ObservationSpace with `shape`, `dtype` and, of packed
    observations, `parts`; and `settings`, the run's section [network], of which `hidden`, `activation`, `layer_norm`
    and `initialization` are the torso's to heed or not. All buffers and parameters are float32: both travel.
    """

    features: int  # F, the width of the output

    def forward(self, observations: Tensor) -> Tensor:
        """
        [N, ...] → [N, F].

        Observations are float32: pixels are divided by 255, or normalised as --normalization says. Packed ones are
        bytes; `part_of` in packed_parts.py reads each part.
        """
        ...


def own_torso(settings: Network, observations: ObservationSpace) -> tuple[nn.Module, int]:
    """The torso that the settings name, and the width of its output. Raises SettingsError."""
    flag = f"--network {settings.name}"
    make = own_part(settings.name, flag="--network", kind=NEEDED)
    try:
        torso = make(observations, settings)
    except TypeError as error:
        raise SettingsError(f"{flag}: {error}; {NEEDED}") from error
    if not isinstance(torso, nn.Module):
        raise SettingsError(f"{flag}: is no torch.nn.Module but {type(torso).__name__}; {NEEDED}")
    features = getattr(torso, "features", None)
    if not isinstance(features, int) or features < 1:
        what = "has no `features`" if features is None else f"has `features` {features!r}, no number above 0"
        raise SettingsError(f"{flag}: {what}; {NEEDED}")
    for name, tensor in (*torso.named_parameters(), *torso.named_buffers()):
        if tensor.dtype != torch.float32:
            raise SettingsError(f"{flag}: its {name} is {tensor.dtype}; parameters and buffers travel as float32")
    return torso, features
