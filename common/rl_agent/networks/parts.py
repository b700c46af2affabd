"""The parts of observations by their keys, ready for a custom torso."""

import torch
from torch import Tensor, nn

from ps_common.settings.run_spec import NetworkSettings
from rl_agent.environments.spaces import ObservationSpace
from rl_agent.networks.custom_network import part_of
from rl_agent.networks.running_statistics import RunningNormalization
from rl_agent.networks.torsos import normalization_of


class Parts(nn.Module):
    """
    Observations [N, ...] → {key: float32}, of a Dict such as {"camera": [N, 1, 32, 32], "arm.joints": [N, 6]}.

        self.parts = Parts(observations, settings)  # in a torso's __init__; self.parts.shapes: of each key
        seen = self.parts(observations)             # in its forward

    Keys are those of the environment, joined by dots; places in a Tuple are "0", "1" and so on. Images have their
    channels first, and pixels are divided by 255; all else is numbers [N, size], discrete ones one-hot. Floats are
    normalized as --normalization says. An observation without keys has the key "observations". Where no key is known,
    keys are "vector", "image", "image_1". Heads apply the action mask: it is no part here.
    """

    shapes: dict[str, tuple[int, ...]]  # without N

    def __init__(self, observations: ObservationSpace, settings: NetworkSettings) -> None:
        super().__init__()
        self._parts = [part for part in observations.parts if part.kind != "mask"]
        self.layers = nn.ModuleList()
        for part in self._parts:
            layers = normalization_of(settings, ObservationSpace(part.shape, part.dtype))
            for layer in layers:
                if isinstance(layer, RunningNormalization):
                    layer.part = part
            self.layers.append(nn.Sequential(*layers))
        if observations.native is not None:
            leaves = [(leaf.key or "observations", leaf.array_shape) for leaf in observations.native.leaves]
            self._numbers = [(key, shape[0]) for key, shape in leaves if len(shape) == 1]
            self._images = [key for key, shape in leaves if len(shape) != 1]
            self.shapes = dict(leaves)
            return
        kinds = [part.kind for part in self._parts]
        named = [f"image_{kinds[:place].count('image')}" if kind in kinds[:place] else kind
                 for place, kind in enumerate(kinds)] or ["observations"]  # fmt: skip
        shapes = [part.shape for part in self._parts] or [observations.shape]
        self.shapes = dict(zip(named, shapes, strict=True))
        self._numbers = [(key, shape[0]) for key, shape in self.shapes.items() if len(shape) == 1]
        self._images = [key for key, shape in self.shapes.items() if len(shape) != 1]

    def forward(self, observations: Tensor) -> dict[str, Tensor]:
        """What a torso is given, as the class says."""
        read = [observations]
        if self._parts:
            read = [layer(part_of(observations, part)) for layer, part in zip(self.layers, self._parts, strict=True)]
        seen: dict[str, Tensor] = {}
        if self._numbers:
            sizes = [size for _, size in self._numbers]
            seen |= zip((key for key, _ in self._numbers), torch.split(read.pop(0), sizes, dim=-1), strict=True)
        return seen | dict(zip(self._images, read, strict=True))
