"""
Torsos, which turn observations into features: named convolutions, hidden layers, and their initialization.

`torso_for` reads the run's [network] section. networks.py adds an LSTM and heads.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ps_common.errors import SettingsError
from ps_common.protocol.names import is_import_path
from ps_common.settings.run_spec import NetworkSettings
from rl_agent.environments.spaces import ObservationSpace
from rl_agent.networks.compatibility import check_network, torso_name
from rl_agent.networks.custom_network import custom_torso, part_of
from rl_agent.networks.normalization import PixelsToUnit, RandomPlayNormalization
from rl_agent.networks.running_statistics import RunningNormalization

Convolution = tuple[int, int, int, int]  # channels, kernel, stride, padding

# By name: convolutions, and the default hidden layers after them.
CONVOLUTIONS: dict[str, tuple[list[Convolution], tuple[int, ...]]] = {
    "conv84": ([(16, 8, 4, 0), (32, 4, 2, 0)], (256,)),  # Mnih et al. 2016, section 8; Mnih et al. 2013
    "nature84": ([(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)], (512,)),  # Mnih et al. 2015
    "conv42": ([(16, 4, 2, 0), (32, 4, 2, 0), (32, 3, 2, 0)], (256,)),
    "shallow40": ([(16, 8, 4, 0)], (256,)),  # features that stay where they are: 9x9 places of 8x8 pixels
    "universe42": ([(32, 3, 2, 1)] * 4, ()),  # OpenAI's universe-starter-agent, whose LSTM follows the convolutions
    "conv10": ([(16, 3, 1, 0)], (128,)),  # Young & Tian 2019 (MinAtar)
    "conv": ([], (256,)),  # images of any size: see _convolutions
}
SMALL_SIDE = 8  # of an image after the convolutions of `conv`
DENSE_HIDDEN = (64, 64)
VECTOR_WIDTH = 64  # of the layer over the vector of an observation with several parts
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
}
NORMAL_DEVIATION = 0.1


def torso_for(
    settings: NetworkSettings, observations: ObservationSpace, hidden: Sequence[int]
) -> tuple[nn.Sequential, int]:
    """
    A network from observations [N, ...] to features [N, F], and F. An empty `hidden` means the torso's own layers.

    Raises SettingsError if the settings do not fit the observations.
    """
    check_network(settings, observations)
    if is_import_path(settings.name):
        torso, features = custom_torso(settings, observations)
        is_read = any(isinstance(module, RunningNormalization) for module in torso.modules())
        if observations.parts and settings.normalization == "running" and not is_read:
            raise SettingsError(
                f"--normalization running: {settings.name} reads packed observations as they are; let it read them by "
                "ps_rl.Parts, which normalizes"
            )
        return nn.Sequential(*([] if observations.parts else normalization_of(settings, observations)), torso), features
    layers, size, name = encoder_for(settings, observations)
    for width in tuple(hidden) or (DENSE_HIDDEN if name == "mlp" else CONVOLUTIONS[name][1]):
        layers.append(initialized(nn.Linear(size, width), settings, gain=math.sqrt(2)))
        layers += _after(settings, _activation(settings, name), (width,))
        size = width
    return nn.Sequential(*layers), size


def encoder_for(settings: NetworkSettings, observations: ObservationSpace) -> tuple[list[nn.Module], int, str]:
    """The layers of a torso of ours before its hidden ones, the number of their features, and the torso's name."""
    images = [part.shape for part in observations.parts if part.kind == "image"]
    name = torso_name(settings, images[0] if images else observations.shape)
    if observations.parts:
        encoder = PartsEncoder(settings, observations)
        return [encoder], encoder.features, name
    return *_plain(settings, observations, name), name


class PartsEncoder(nn.Module):
    """Packed observations [N, bytes] → features of all images and of the vector, in one row [N, F]."""

    def __init__(self, settings: NetworkSettings, observations: ObservationSpace) -> None:
        super().__init__()
        self._parts = [part for part in observations.parts if part.kind != "mask"]
        self.encoders = nn.ModuleList()
        self.features = 0
        for part in self._parts:
            name = torso_name(settings, part.shape) if part.kind == "image" else "mlp"
            layers, size = _plain(settings, ObservationSpace(part.shape, part.dtype), name)
            if part.kind == "vector":  # a few numbers among hundreds of features of an image would hardly count
                layers.append(initialized(nn.Linear(size, VECTOR_WIDTH), settings, gain=math.sqrt(2)))
                layers += _after(settings, _activation(settings, name), (VECTOR_WIDTH,))
                size = VECTOR_WIDTH
            for layer in layers:
                if isinstance(layer, RunningNormalization):
                    layer.part = part
            self.encoders.append(nn.Sequential(*layers))
            self.features += size

    def forward(self, packed: Tensor) -> Tensor:
        read = zip(self.encoders, self._parts, strict=True)
        return torch.cat([encoder(part_of(packed, part)) for encoder, part in read], dim=-1)


def _plain(settings: NetworkSettings, observations: ObservationSpace, name: str) -> tuple[list[nn.Module], int]:
    """The layers before the hidden ones for observations of one array, and the number of features after them."""
    shape = observations.shape
    layers = normalization_of(settings, observations)
    if name == "mlp":
        return [*layers, nn.Flatten()], math.prod(shape)
    channels, height, width = shape
    for out, kernel, stride, padding in _convolutions(name, height, width):
        convolution = nn.Conv2d(channels, out, kernel, stride, padding)
        layers.append(initialized(convolution, settings, gain=math.sqrt(2)))
        channels, height, width = out, *(_smaller(side, kernel, stride, padding) for side in (height, width))
        layers += _after(settings, _activation(settings, name), (channels, height, width))
    return [*layers, nn.Flatten()], channels * height * width


def _convolutions(name: str, height: int, width: int) -> list[Convolution]:
    """Those of the name; those of `conv` make the sides smaller until the larger one is SMALL_SIDE or less."""
    if name != "conv":
        return CONVOLUTIONS[name][0]
    halvings = max(1, math.ceil(math.log2(max(height, width) / SMALL_SIDE)))
    return [(32, 3, 2, 1)] * halvings if halvings < 3 else [(16, 7, 4, 3), *[(32, 3, 2, 1)] * (halvings - 2)]


def head(features: int, outputs: int, settings: NetworkSettings, *, gain: float) -> nn.Module:
    """The last layer: parameters of a policy, a value, or action values."""
    layer = nn.Linear(features, outputs)
    if settings.initialization == "normalized_columns" and not layer.weight.is_meta:
        # The weights of each output are a vector of length `gain`, as in OpenAI's universe-starter-agent.
        weight = torch.randn(outputs, features)
        layer.weight.data.copy_(weight * gain / weight.square().sum(1, keepdim=True).sqrt())
        nn.init.zeros_(layer.bias)
        return layer
    return initialized(layer, settings, gain=gain)


def initialized(layer: nn.Linear | nn.Conv2d, settings: NetworkSettings, *, gain: float) -> nn.Module:
    """The layer with weights drawn from torch's random generator as the settings say, and zero bias."""
    if layer.weight.is_meta:  # it has a shape, and no numbers
        return layer
    match settings.initialization:
        case "orthogonal":  # Saxe et al. 2014
            nn.init.orthogonal_(layer.weight, gain)
        case "normal":
            nn.init.normal_(layer.weight, std=NORMAL_DEVIATION)
        case "xavier" | "normalized_columns":  # Glorot & Bengio 2010
            nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def normalization_of(settings: NetworkSettings, observations: ObservationSpace) -> list[nn.Module]:
    """The modules that scale observations of one array, if the settings ask for any."""
    if settings.normalization == "random_play":
        return [RandomPlayNormalization(*observations.shape[1:])]
    if observations.pixels:
        return [PixelsToUnit()]
    return [RunningNormalization(observations.shape)] if settings.normalization in ("auto", "running") else []


def _activation(settings: NetworkSettings, name: str) -> Callable[[], nn.Module]:
    return ACTIVATIONS[("tanh" if name == "mlp" else "relu") if settings.activation == "auto" else settings.activation]


def _after(settings: NetworkSettings, activation: Callable[[], nn.Module], shape: tuple[int, ...]) -> list[nn.Module]:
    """The modules after a linear or convolutional layer: layer norm if it is on, then the activation."""
    return [*([nn.LayerNorm(shape)] if settings.layer_norm else []), activation()]


def _smaller(side: int, kernel: int, stride: int, padding: int) -> int:
    return (side + 2 * padding - kernel) // stride + 1
