"""A custom torso, `--network my_pkg:MyTorso`: what it must be, how it reads packed observations, and how it is made."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ps_common.errors import SettingsError
from ps_common.protocol.tensors import ABSURD_NORM
from ps_common.settings.run_spec import NetworkSettings
from rl_agent.environments.imports import custom_part, taking
from rl_agent.environments.spaces import ObservationSpace, Part

NEEDED = (
    "a torso is a class of torch.nn.Module, made with (observations, settings), that has `features`, the width of its "
    "output"
)

NO_BATCH_NORM = (
    "whose statistics are those of a batch: a policy acts on one observation at a time, and workers share parameters "
    "alone; take nn.LayerNorm or nn.GroupNorm"
)

NO_MASK = (
    "which no server accepts; for a mask use a large negative number such as -1e9, or masked_fill with a bool made in "
    "forward"
)


def part_of(packed: Tensor, part: Part) -> Tensor:
    """A part of packed observations, a view of the rows: [..., bytes] → [..., *part.shape] of the part's dtype."""
    if packed.dtype == torch.float32:  # of an ONNX, which reads no bytes: elements lie behind the part's first byte
        rows = packed[..., part.offset : part.offset + math.prod(part.shape)]
        return rows.reshape(*rows.shape[:-1], *part.shape).to(
            torch.float32 if part.dtype == np.float32 else torch.uint8
        )
    rows = packed[..., part.offset : part.end]
    if part.dtype == np.float32:
        rows = rows.view(torch.float32)
    return rows.reshape(*rows.shape[:-1], *part.shape)


def custom_torso(settings: NetworkSettings, observations: ObservationSpace) -> tuple[nn.Module, int]:
    """The torso that the settings name, and the width of its output. Raises SettingsError."""
    flag = f"--network {settings.name}"
    make = custom_part(settings.name, flag="--network", kind=NEEDED)
    try:
        with taking(settings.kwargs, flag="--network-kwargs"):
            torso = make(observations, settings, **settings.kwargs)
    except TypeError as error:
        raise SettingsError(f"{flag}: {error}; {NEEDED}") from error
    if not isinstance(torso, nn.Module):
        raise SettingsError(f"{flag}: is no torch.nn.Module but {type(torso).__name__}; {NEEDED}")
    features = getattr(torso, "features", None)
    if not isinstance(features, int) or features < 1:
        what = "has no `features`" if features is None else f"has `features` {features!r}, no number above 0"
        raise SettingsError(f"{flag}: {what}; {NEEDED}")
    check_travels(torso, flag=flag)
    return torso, features


def check_travels(network: nn.Module, *, flag: str) -> None:
    """Raises SettingsError when a server cannot hold what a custom network, which `flag` names, learns."""
    for name, module in network.named_modules():
        if isinstance(module, _BatchNorm):
            raise SettingsError(f"{flag}: its {name} is a {type(module).__name__}, {NO_BATCH_NORM}")
    tensors = dict(network.named_parameters()) | dict(network.named_buffers())
    if shared := sharing(tensors):
        raise SettingsError(
            f"{flag}: its {shared[1]} shares memory with {shared[0]}, but each travels alone; assign the Parameter "
            "itself (self.b.weight = self.a.weight), or clone() what is to be apart"
        )
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            raise SettingsError(f"{flag}: its {name} is {tensor.dtype}; parameters and buffers travel as float32")
        if not float(tensor.detach().norm()) <= ABSURD_NORM:  # NaN is not
            raise SettingsError(f"{flag}: its {name} holds NaN, infinity or numbers above {ABSURD_NORM:g}, {NO_MASK}")


def sharing(tensors: Mapping[str, Tensor]) -> tuple[str, str] | None:
    """The names of the first two tensors with memory in common; twice the name of one that repeats its own."""
    by_memory: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        by_memory.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    for names in by_memory.values():
        elements = tensors[names[0]].untyped_storage().nbytes() // tensors[names[0]].element_size()
        if len(names) == 1 and tensors[names[0]].numel() <= elements:
            continue
        owners = torch.full((elements,), -1)
        for number, name in enumerate(names):
            tensor = tensors[name]
            place = torch.arange(elements).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).flatten()
            if len(place) and (owner := int(owners[place].max())) >= 0:
                return names[owner], name
            owners[place] = number
            if len(set(place.tolist())) < len(place):
                return name, name
    return None
