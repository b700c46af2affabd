"""The functions that are trained: torsos for what is seen, and heads for policy and value."""

import math
from collections.abc import Sequence

from torch import Tensor, nn

from common.errors import SettingsError
from common.run_spec import Network
from rl_worker.normalization import PixelsToUnit, RandomPlayNormalization


class PolicyValueNetwork(nn.Module):
    """A torso shared by a policy head and a value head (Mnih et al. 2016, section 4.4)."""

    def __init__(self, torso: nn.Module, features: int, actions: int) -> None:
        super().__init__()
        self.torso = torso
        self.policy = _initialised(nn.Linear(features, actions), gain=0.01)
        self.value = _initialised(nn.Linear(features, 1), gain=1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """observations [N, ...] → logits of the actions [N, A], values [N]"""
        features = self.torso(observations)
        return self.policy(features), self.value(features).squeeze(-1)


def policy_value_network(
    settings: Network, observation_shape: Sequence[int], *, pixels: bool, actions: int
) -> nn.Module:
    """
    The network that the run names, or the one that suits the observations; weights from torch's random generator.

    `pixels` says that observations are uint8. Raises SettingsError when the named one does not fit.
    """
    shape = tuple(observation_shape)
    name = settings.name if settings.name != "auto" else _BY_SIZE.get(shape[1:], "mlp")
    if name in _CONVOLUTIONS:
        size, convolutions = _CONVOLUTIONS[name]
        if shape[1:] != size:
            raise SettingsError(f"--network {name}: is for frames of {size}, and observations are {shape}")
        torso, features = _convolutional(convolutions, shape, settings.hidden or (256,))
    else:
        torso, features = _dense(math.prod(shape), settings.hidden or (64, 64))
    return PolicyValueNetwork(nn.Sequential(*_normalization(settings, shape, pixels), *torso), features, actions)


# (channels, kernel, stride) of each convolution, by network, with the size of frames it is for.
_CONVOLUTIONS: dict[str, tuple[tuple[int, ...], list[tuple[int, int, int]]]] = {
    "conv84": ((84, 84), [(16, 8, 4), (32, 4, 2)]),  # Mnih et al. 2016, section 8; Mnih et al. 2013
    "conv42": ((42, 42), [(16, 4, 2), (32, 4, 2), (32, 3, 2)]),
}
_BY_SIZE = {size: name for name, (size, _) in _CONVOLUTIONS.items()}


def _normalization(settings: Network, shape: tuple[int, ...], pixels: bool) -> list[nn.Module]:
    if settings.normalization == "random_play":
        if not pixels or len(shape) != 3:
            raise SettingsError(f"--normalization random_play: is for frames of pixels, and observations are {shape}")
        return [RandomPlayNormalization(*shape[1:])]
    return [PixelsToUnit()] if pixels else []


def _convolutional(
    convolutions: Sequence[tuple[int, int, int]], shape: tuple[int, ...], hidden: Sequence[int]
) -> tuple[nn.Sequential, int]:
    channels, height, width = shape
    layers: list[nn.Module] = []
    for out, kernel, stride in convolutions:
        layers += [_initialised(nn.Conv2d(channels, out, kernel, stride), gain=math.sqrt(2)), nn.ReLU()]
        channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    size = channels * height * width
    layers.append(nn.Flatten())
    for width_of_layer in hidden:
        layers += [_initialised(nn.Linear(size, width_of_layer), gain=math.sqrt(2)), nn.ReLU()]
        size = width_of_layer
    return nn.Sequential(*layers), size


def _dense(size: int, hidden: Sequence[int]) -> tuple[nn.Sequential, int]:
    layers: list[nn.Module] = [nn.Flatten()]
    for width in hidden:
        layers += [_initialised(nn.Linear(size, width), gain=math.sqrt(2)), nn.Tanh()]
        size = width
    return nn.Sequential(*layers), size


def _initialised(layer: nn.Linear | nn.Conv2d, *, gain: float) -> nn.Module:
    """Orthogonal weights, zero bias: Saxe et al. 2014."""
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None, "all layers here have a bias"
    nn.init.zeros_(layer.bias)
    return layer
