"""
Observations on a common scale: each pixel less what it shows in random play, over its deviation there.

Most of a game's screen never changes, and a ball is one pixel: divided by 255, what matters is a ripple on a large
constant. Vectors of joints and speeds have a scale each, which is known only once something has been seen. What is
known is kept as statistics of the schema: all workers, every checkpoint and every evaluation have the same. The worker
that seeds the run measures them in random play; running ones then grow by what each push adds.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from rl_worker.environments.interface import Environments

SAMPLES = 3200  # observations of random play
SMALLEST_DEVIATION = 16.0  # of a pixel, in 0 … 255: one that hardly ever changes must not be blown up
LARGE_BATCH = 64  # observations; below it, as when acting, channels last costs more than it brings
SMALLEST_VARIANCE = 1e-6  # of a number in a vector
ENOUGH = 1e7  # observations: beyond it float32 counts no further, and nothing new is learned of their scale
LARGEST = 5.0  # what is normalised is clipped to ± this


class PixelsToUnit(nn.Module):
    """uint8 pixels → float32 in [0, 1]"""

    def forward(self, pixels: Tensor) -> Tensor:
        return _float32(pixels).mul_(1 / 255)


class RandomPlayNormalization(nn.Module):
    """uint8 pixels [N, C, H, W] → (pixels − mean) · scale, clipped. Mean and scale are [H, W], alike for all frames."""

    mean: Tensor
    scale: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(height, width))
        self.register_buffer("scale", torch.ones(height, width))

    def forward(self, pixels: Tensor) -> Tensor:
        floats = _float32(pixels)
        # Spread over the channels as the pixels lie: read in strides, they take longer than the pixels themselves.
        mean, scale = (torch.empty_like(floats[:1]).copy_(frame) for frame in (self.mean, self.scale))
        return floats.sub_(mean).mul_(scale).clamp_(-LARGEST, LARGEST)

    def measure(self, seen: Tensor) -> None:
        """Set mean and scale from observations [N, C, H, W] of random play."""
        pixels = seen[:, -1].to(torch.float32)
        self.mean.copy_(pixels.mean(0))
        self.scale.copy_(1 / pixels.std(0, correction=0).clamp_min_(SMALLEST_DEVIATION))


class RunningNormalization(nn.Module):
    """
    float32 vectors [N, D] → (x − mean) / deviation, clipped; both over all that the workers have seen so far.

    `count`, `total` and `squares` are sums over what was seen, less `center`, so that a mean far from zero costs no
    digits. They grow by what each push adds, up to ENOUGH observations.
    """

    center: Tensor
    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(size))
        self.register_buffer("count", torch.ones(()))
        self.register_buffer("total", torch.zeros(size))
        self.register_buffer("squares", torch.ones(size))
        self._added: dict[str, Tensor] = {}  # what was observed and not pushed yet, by buffer

    def forward(self, vectors: Tensor) -> Tensor:
        mean = self.total / self.count
        deviation = (self.squares / self.count - mean.square()).clamp_min(SMALLEST_VARIANCE).sqrt()
        return ((vectors - self.center - mean) / deviation).clamp(-LARGEST, LARGEST)

    def measure(self, seen: Tensor) -> None:
        """Begin with observations [N, D] of random play."""
        self.center.copy_(seen.mean(0))
        for name, value in self._sums(seen).items():
            getattr(self, name).copy_(value)

    def observe(self, vectors: Tensor) -> None:
        """Count observations [N, D]; the next push takes them along."""
        if float(self.count) < ENOUGH:
            for name, value in self._sums(vectors).items():
                self._added[name] = self._added.get(name, 0) + value

    def take_added(self) -> dict[str, Tensor]:
        """What to add to the buffers at the server, by name; forgotten here."""
        added, self._added = self._added, {}
        return added

    def _sums(self, vectors: Tensor) -> dict[str, Tensor]:
        centered = vectors.to(self.center.device) - self.center
        return {
            "count": torch.tensor(float(len(vectors)), device=centered.device),
            "total": centered.sum(0),
            "squares": centered.square().sum(0),
        }


def _float32(pixels: Tensor) -> Tensor:
    """Large batches of images with their channels last: convolutions of the learner take a quarter less time so."""
    if pixels.dim() == 4 and len(pixels) >= LARGE_BATCH:
        pixels = pixels.contiguous(memory_format=torch.channels_last)  # while they are bytes, a quarter of the memory
    return pixels.to(torch.float32)


def measure_normalization(network: nn.Module, environments: Environments, *, seed: int) -> None:
    """What a network wants to know of its observations before it is seeded, if anything. Wants a reset afterwards."""
    modules = [module for module in network.modules() if isinstance(module, NORMALIZATIONS)]
    if modules:
        seen = _random_play(environments, seed)
        for module in modules:
            module.measure(seen)


def observe(network: nn.Module, observations: Tensor) -> None:
    """Have running normalisations count observations [N, ...]."""
    for _, module in _running(network):
        module.observe(observations)


def take_added(network: nn.Module) -> dict[str, Tensor]:
    """What running normalisations add to the network's buffers with the next push, by the buffers' full names."""
    return {
        f"{path}.{name}": value for path, module in _running(network) for name, value in module.take_added().items()
    }


def _running(network: nn.Module) -> Iterator[tuple[str, RunningNormalization]]:
    return ((path, module) for path, module in network.named_modules() if isinstance(module, RunningNormalization))


def _random_play(environments: Environments, seed: int) -> Tensor:
    """SAMPLES observations [N, ...]."""
    random = np.random.default_rng(seed)
    environments.reset(seed)
    count = environments.count
    seen = []
    for _ in range(math.ceil(SAMPLES / count)):
        actions = environments.actions.sample(random, count)
        seen.append(environments.step(actions).observations.copy())
    return torch.from_numpy(np.concatenate(seen))


NORMALIZATIONS = (RandomPlayNormalization, RunningNormalization)
