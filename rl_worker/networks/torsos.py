"""
Torsos, which turn observations into features: named convolutions, hidden layers, and their initialization.

`torso_for` reads the run's [network] section. networks.py adds an LSTM and heads.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from common.settings.run_spec import Network
from rl_worker.networks.compatibility import check_network, torso_name
from rl_worker.networks.normalization import PixelsToUnit, RandomPlayNormalization, RunningNormalization

Convolution = tuple[int, int, int, int]  # channels, kernel, stride, padding

# By name: convolutions, and the default hidden layers after them.
CONVOLUTIONS: dict[str, tuple[list[Convolution], tuple[int, ...]]] = {
    "conv84": ([(16, 8, 4, 0), (32, 4, 2, 0)], (256,)),  # Mnih et al. 2016, section 8; Mnih et al. 2013
    "nature84": ([(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)], (512,)),  # Mnih et al. 2015
    "conv42": ([(16, 4, 2, 0), (32, 4, 2, 0), (32, 3, 2, 0)], (256,)),
    "universe42": ([(32, 3, 2, 1)] * 4, ()),  # OpenAI's universe-starter-agent, whose LSTM follows the convolutions
    "conv10": ([(16, 3, 1, 0)], (128,)),  # Young & Tian 2019 (MinAtar)
}
DENSE_HIDDEN = (64, 64)
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
}
NORMAL_DEVIATION = 0.1


def torso_for(
    settings: Network, shape: Sequence[int], hidden: Sequence[int], *, pixels: bool
) -> tuple[nn.Sequential, int]:
    """
    A network from observations [N, *shape] to features [N, F], and F. An empty `hidden` means the torso's own layers.

    `pixels`: observations are uint8. Raises SettingsError if the settings do not fit the observations.
    """
    shape = tuple(shape)
    check_network(settings, shape, pixels=pixels)
    name = torso_name(settings, shape)
    layers = _normalization(settings, shape, pixels)
    size = math.prod(shape)
    if name in CONVOLUTIONS:
        convolutions, own_hidden = CONVOLUTIONS[name]
        activation = ACTIVATIONS["relu" if settings.activation == "auto" else settings.activation]
        channels, height, width = shape
        for out, kernel, stride, padding in convolutions:
            convolution = nn.Conv2d(channels, out, kernel, stride, padding)
            layers.append(initialized(convolution, settings, gain=math.sqrt(2)))
            channels, height, width = out, *(_smaller(side, kernel, stride, padding) for side in (height, width))
            layers += _after(settings, activation, (channels, height, width))
        size = channels * height * width
    else:
        own_hidden = DENSE_HIDDEN
        activation = ACTIVATIONS["tanh" if settings.activation == "auto" else settings.activation]
    layers.append(nn.Flatten())
    for width_of_layer in tuple(hidden) or own_hidden:
        layers.append(initialized(nn.Linear(size, width_of_layer), settings, gain=math.sqrt(2)))
        layers += _after(settings, activation, (width_of_layer,))
        size = width_of_layer
    return nn.Sequential(*layers), size


def head(features: int, outputs: int, settings: Network, *, gain: float) -> nn.Module:
    """The last layer: parameters of a policy, a value, or action values."""
    layer = nn.Linear(features, outputs, bias=settings.head_bias)
    if settings.initialization == "normalized_columns":
        # The weights of each output are a vector of length `gain`, as in OpenAI's universe-starter-agent.
        weight = torch.randn(outputs, features)
        layer.weight.data.copy_(weight * gain / weight.square().sum(1, keepdim=True).sqrt())
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
        return layer
    return initialized(layer, settings, gain=gain)


def initialized(layer: nn.Linear | nn.Conv2d, settings: Network, *, gain: float) -> nn.Module:
    """The layer with weights drawn from torch's random generator as the settings say, and zero bias."""
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


def _normalization(settings: Network, shape: tuple[int, ...], pixels: bool) -> list[nn.Module]:
    match settings.normalization:
        case "random_play":
            return [RandomPlayNormalization(*shape[1:])]
        case "running":
            return [RunningNormalization(shape[0])]
        case "none":
            return [PixelsToUnit()] if pixels else []


def _after(settings: Network, activation: Callable[[], nn.Module], shape: tuple[int, ...]) -> list[nn.Module]:
    """The modules after a linear or convolutional layer: layer norm if it is on, then the activation."""
    return [*([nn.LayerNorm(shape)] if settings.layer_norm else []), activation()]


def _smaller(side: int, kernel: int, stride: int, padding: int) -> int:
    return (side + 2 * padding - kernel) // stride + 1
