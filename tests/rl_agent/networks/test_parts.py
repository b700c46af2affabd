"""What a custom torso is given of a Dict: each part by its key, scaled as the torsos of ps-rl scale it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from torch import Tensor, nn

from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Environment, NetworkSettings
from ps_rl import ObservationSpace, Parts
from rl_agent.agent import build_agent
from rl_agent.environments.gymnasium_spaces import ActionCodec, ObservationReader
from rl_agent.environments.imports import import_modules
from rl_agent.networks.running_statistics import observe
from rl_eval.spaces_record import PolicySpaces

CAMERA = Box(0, 255, (8, 9, 3), np.uint8)
ROBOT = Dict(arm=Dict(joints=Box(-5, 5, (6,)), tool=Discrete(3)), camera=CAMERA, depth=Box(0, 9, (16, 17, 1)))


class Torso(nn.Module):
    """All parts in one row."""

    def __init__(self, observations: ObservationSpace, settings: NetworkSettings) -> None:
        super().__init__()
        self.parts = Parts(observations, settings)
        self.features = sum(math.prod(shape) for shape in self.parts.shapes.values())

    def forward(self, observations: Tensor) -> Tensor:
        return torch.cat([part.flatten(1) for part in self.parts(observations).values()], dim=-1)


def rows_of(space: Any, count: int) -> tuple[ObservationReader, list[Any], Tensor]:
    reader = ObservationReader(space, ActionCodec(Environment(), Discrete(2)), masks="none")
    space.seed(3)
    shown = [space.sample() for _ in range(count)]
    return reader, shown, torch.from_numpy(np.stack([reader.array(one, {}) for one in shown]))


def test_parts_are_read_by_their_keys() -> None:
    reader, shown, rows = rows_of(ROBOT, 5)
    parts = Parts(reader.array_space, NetworkSettings(normalization="none"))
    seen = parts(rows)
    assert {key: tuple(part.shape[1:]) for key, part in seen.items()} == parts.shapes
    assert list(seen) == ["arm.joints", "arm.tool", "camera", "depth"]
    for row, one in enumerate(shown):
        np.testing.assert_array_equal(seen["arm.joints"][row], one["arm"]["joints"])
        assert seen["arm.tool"][row].argmax() == one["arm"]["tool"]
        np.testing.assert_allclose(seen["camera"][row], one["camera"].transpose(2, 0, 1) / 255, rtol=1e-6)
        np.testing.assert_array_equal(seen["depth"][row], one["depth"].transpose(2, 0, 1))


@pytest.mark.parametrize("space", [ROBOT, Dict(a=Box(-5, 5, (2,)), b=Discrete(3)), Tuple([Box(-5, 5, (2,)), CAMERA])])
@pytest.mark.parametrize("normalization", ["auto", "running", "none"])
def test_floats_of_a_custom_torso_are_normalized_as_those_of_ours(space: Any, normalization: str) -> None:
    """The statistics of both have seen the same rows."""
    import_modules([__name__], Environment(), source="test", is_trusted=True)
    reader, _, rows = rows_of(space, 40)
    spaces = PolicySpaces(reader.array_space, reader._codec.actions)
    section: dict[str, Any] = {"normalization": normalization}
    read: list[Tensor] = []
    for name in (f"{__name__}:Torso", "auto"):
        run = run_from_dict({"seed": 1, "network": section | {"name": name}}, source="test")
        network = build_agent(run, spaces, device=torch.device("cpu"), seed=0).network
        observe(network, rows.unsqueeze(0), torch.zeros(1, 40), torch.ones(1, 40))
        for module in network.modules():
            if hasattr(module, "begin") and module._added:
                module.begin()
        torso = network.branch.torso
        if name == "auto":
            layers = [torso[0]] if not spaces.observations.parts else [encoder[0] for encoder in torso[0].encoders]
            parts = [rows]
            if spaces.observations.parts:
                parts = [torch.from_numpy(part.of(rows.numpy())) for part in spaces.observations.parts]
            scaled = [_scaled(layer, part) for layer, part in zip(layers, parts, strict=True)]
            read.append(torch.cat([part.flatten(1) for part in scaled], dim=-1))
        else:
            read.append(torso(rows))
    torch.testing.assert_close(read[0], read[1])
    is_unit = float(read[0][:, :2].std()) < 1.5
    assert is_unit == (normalization != "none")


def _scaled(layer: nn.Module, part: Tensor) -> Tensor:
    """Of a layer that scales; another one comes after none."""
    return part if isinstance(layer, nn.Flatten | nn.Conv2d) else layer(part)
