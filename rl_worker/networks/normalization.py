"""
Normalization of observations: each element minus its mean, divided by its standard deviation.

Most of a game's screen never changes, and a ball is one pixel: divided by 255, it is a ripple on a large constant.
Joint angles and speeds each have a scale of their own, which is unknown before the first observations. Means and scales
are statistics of the schema, so all workers, checkpoints and evaluations use the same ones. The worker that seeds the
run measures them in random play; running statistics then grow with every push.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from rl_worker.environments.interface import Environments
from rl_worker.environments.spaces import Part
from rl_worker.networks.packed_parts import part_of

SAMPLES = 3200  # observations of random play
SMALLEST_DEVIATION = 16.0  # of a pixel, in 0 … 255: noise in a pixel that hardly ever changes must not be amplified
LARGE_BATCH = 64  # observations; for smaller batches, as in acting, converting to channels last does not pay
SMALLEST_VARIANCE = 1e-6  # of an element of a vector
MOST_COUNTED = 1e7  # observations: float32 cannot count much further, and by then the scale is known
CLIP = 5.0  # normalized values are clipped to ± this


class PixelsToUnit(nn.Module):
    """uint8 pixels → float32 in [0, 1]"""

    def forward(self, pixels: Tensor) -> Tensor:
        return _float32(pixels).mul_(1 / 255)


class RandomPlayNormalization(nn.Module):
    """uint8 pixels [N, C, H, W] → (pixels − mean) · scale, clipped. Mean and scale [H, W] are shared by all frames."""

    mean: Tensor
    scale: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(height, width))
        self.register_buffer("scale", torch.ones(height, width))

    def forward(self, pixels: Tensor) -> Tensor:
        floats = _float32(pixels)
        # Expanded to the pixels' memory layout: reading mean and scale with strides takes longer than reading pixels.
        mean, scale = (torch.empty_like(floats[:1]).copy_(frame) for frame in (self.mean, self.scale))
        return floats.sub_(mean).mul_(scale).clamp_(-CLIP, CLIP)

    def measure(self, seen: Tensor) -> None:
        """Set mean and scale from observations [N, C, H, W] of random play."""
        pixels = seen[:, -1].to(torch.float32)
        self.mean.copy_(pixels.mean(0))
        self.scale.copy_(1 / pixels.std(0, correction=0).clamp_min_(SMALLEST_DEVIATION))


class RunningNormalization(nn.Module):
    """
    float32 vectors [N, D] → (x − mean) / deviation, clipped; both over the observations of all workers so far.

    `count`, `total` and `squares` are sums over observations minus `center`, so that a mean far from zero costs no
    precision. Each push adds to them, up to MOST_COUNTED observations.
    """

    center: Tensor
    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.part: Part | None = None  # the vector's place in packed observations
        self.register_buffer("center", torch.zeros(size))
        self.register_buffer("count", torch.ones(()))
        self.register_buffer("total", torch.zeros(size))
        self.register_buffer("squares", torch.ones(size))
        self._added: dict[str, Tensor] = {}  # sums over observations that are not pushed yet, by buffer

    def forward(self, vectors: Tensor) -> Tensor:
        mean = self.total / self.count
        deviation = (self.squares / self.count - mean.square()).clamp_min(SMALLEST_VARIANCE).sqrt()
        return ((vectors - self.center - mean) / deviation).clamp(-CLIP, CLIP)

    def measure(self, seen: Tensor) -> None:
        """Initialize the sums from observations [N, ...] of random play."""
        seen = self._vectors(seen)
        self.center.copy_(seen.mean(0))
        for name, value in self._sums(seen).items():
            getattr(self, name).copy_(value)

    def observe(self, seen: Tensor) -> None:
        """Add observations [N, ...] to the sums of the next push."""
        if float(self.count) < MOST_COUNTED:
            for name, value in self._sums(self._vectors(seen)).items():
                self._added[name] = self._added.get(name, 0) + value

    def take_added(self) -> dict[str, Tensor]:
        """The increments of the server's statistics, by buffer name; they start again at zero here."""
        added, self._added = self._added, {}
        return added

    def _vectors(self, seen: Tensor) -> Tensor:
        return seen if self.part is None else part_of(seen, self.part)

    def _sums(self, vectors: Tensor) -> dict[str, Tensor]:
        centered = vectors.to(self.center.device) - self.center
        return {
            "count": torch.tensor(float(len(vectors)), device=centered.device),
            "total": centered.sum(0),
            "squares": centered.square().sum(0),
        }


def _float32(pixels: Tensor) -> Tensor:
    """float32 pixels; large batches of images get channels last, which makes the learner's convolutions 25 % faster."""
    is_traced = torch.compiler.is_compiling()  # for ONNX, which takes any number of observations
    if not is_traced and pixels.dim() == 4 and len(pixels) >= LARGE_BATCH:
        pixels = pixels.contiguous(memory_format=torch.channels_last)  # as bytes: a quarter of the memory traffic
    return pixels.to(torch.float32)


def measure_normalization(network: nn.Module, environments: Environments, *, seed: int) -> None:
    """Initialize a network's statistics, if it has any, from random play. The environments need a reset afterwards."""
    modules = [module for module in network.modules() if isinstance(module, NORMALIZATIONS)]
    if modules:
        seen = _random_play(environments, seed)
        for module in modules:
            module.measure(seen)


def observe(network: nn.Module, observations: Tensor) -> None:
    """Add observations [N, ...] to the network's running statistics."""
    for _, module in _running(network):
        module.observe(observations)


def take_added(network: nn.Module) -> dict[str, Tensor]:
    """The increments of the running statistics for the next push, by the buffers' full names."""
    return {
        f"{path}.{name}": value for path, module in _running(network) for name, value in module.take_added().items()
    }


def _running(network: nn.Module) -> Iterator[tuple[str, RunningNormalization]]:
    return ((path, module) for path, module in network.named_modules() if isinstance(module, RunningNormalization))


def _random_play(environments: Environments, seed: int) -> Tensor:
    """SAMPLES observations [N, ...]."""
    random = np.random.default_rng(seed)
    observations = environments.reset(seed)
    count, mask = environments.count, environments.observations.mask
    seen = []
    for _ in range(math.ceil(SAMPLES / count)):
        allowed = None if mask is None else mask.of(observations).astype(np.bool_)
        observations = environments.step(environments.actions.sample(random, count, allowed)).observations
        seen.append(observations.copy())
    return torch.from_numpy(np.concatenate(seen))


NORMALIZATIONS = (RandomPlayNormalization, RunningNormalization)
