"""
Observations on a common scale: each pixel less what it shows in random play, over its deviation there.

Most of a game's screen never changes, and a ball is one pixel: divided by 255, what matters is a ripple on a large
constant. The mean and the deviation are measured once, by the worker that seeds the run, and are statistics of the
schema: every other worker, every checkpoint and every evaluation has the same ones.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from rl_worker.environments import Environments

SAMPLES = 3200  # observations of random play
SMALLEST_DEVIATION = 16.0  # of a pixel, in 0 … 255: one that hardly ever changes must not be blown up
LARGE_BATCH = 64  # observations; below it, as when acting, channels last costs more than it brings
LARGEST = 5.0  # normalised pixels are clipped to ± this


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
        return _float32(pixels).sub_(self.mean).mul_(self.scale).clamp_(-LARGEST, LARGEST)

    def measure(self, environments: Environments, *, seed: int) -> None:
        """Set mean and scale from random play. The environments want a reset afterwards."""
        random = np.random.default_rng(seed)
        environments.reset(seed)
        frames = []
        for _ in range(math.ceil(SAMPLES / environments.count)):
            actions = environments.actions.sample(random, environments.count)
            frames.append(environments.step(actions).observations[:, -1])
        pixels = torch.from_numpy(np.concatenate(frames)).to(torch.float32)
        self.mean.copy_(pixels.mean(0))
        self.scale.copy_(1 / pixels.std(0, correction=0).clamp_min_(SMALLEST_DEVIATION))


def _float32(pixels: Tensor) -> Tensor:
    """Large batches of images with their channels last: convolutions of the learner take a quarter less time so."""
    large = pixels.dim() == 4 and len(pixels) >= LARGE_BATCH
    return pixels.to(torch.float32, memory_format=torch.channels_last if large else torch.preserve_format)


def measure_normalization(network: nn.Module, environments: Environments, *, seed: int) -> None:
    """What a network wants to know of its observations before it is seeded, if anything."""
    for module in network.modules():
        if isinstance(module, RandomPlayNormalization):
            module.measure(environments, seed=seed)
