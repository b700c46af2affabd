"""
Normalization of pixels, and the random play that every normalization begins with.

Most of a game's screen never changes, and a ball is one pixel: divided by 255, it is a ripple on a large constant.
Means and scales are statistics of the schema, so all workers, checkpoints and evaluations use the same ones. The worker
that seeds the run measures them in random play, of which sums are kept and no observation. Statistics that grow with
every push are in running_statistics.py.
"""

from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from rl_agent.environments.interface import Environments, Stepped, random_play
from rl_agent.networks.running_statistics import CLIP, ReturnNormalization, RunningNormalization

# Steps of each environment: running statistics begin with these, and go on with those of training.
FIRST_STEPS = 30
# Pixels are measured once: in SAMPLES observations, and beyond the openings of games however many are played at once.
SAMPLES, LEAST_STEPS = 3200, 200
MOST_SECONDS = 20.0  # of random play: where steps are slow, fewer have to do
SAID_SECONDS = 5.0  # between two lines of the log about its progress
SMALLEST_DEVIATION = 16.0  # of a pixel, in 0 … 255: noise in a pixel that hardly ever changes must not be amplified
LARGE_BATCH = 64  # observations; for smaller batches, as in acting, converting to channels last does not pay


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
        self._sums = torch.zeros(3, height, width, dtype=torch.float64)  # of 1, pixels and their squares; exact

    def forward(self, pixels: Tensor) -> Tensor:
        floats = _float32(pixels)
        # Expanded to the pixels' memory layout: reading mean and scale with strides takes longer than reading pixels.
        mean, scale = (torch.empty_like(floats[:1]).copy_(frame) for frame in (self.mean, self.scale))
        return floats.sub_(mean).mul_(scale).clamp_(-CLIP, CLIP)

    def measure(self, seen: Tensor) -> None:
        """Add observations [N, C, H, W] of random play to those that `begin` takes mean and scale from."""
        pixels = seen[:, -1].to(torch.float64)
        self._sums += torch.stack([torch.ones_like(self._sums[0]) * len(pixels), pixels.sum(0), pixels.square().sum(0)])

    def begin(self) -> None:
        """Set mean and scale from the observations that were measured."""
        count, total, squares = self._sums
        mean = total / count
        self.mean.copy_(mean)
        self.scale.copy_(1 / (squares / count - mean.square()).clamp_min(SMALLEST_DEVIATION**2).sqrt())
        self._sums.zero_()


def _float32(pixels: Tensor) -> Tensor:
    """float32 pixels; large batches of images get channels last, which makes the learner's convolutions 25 % faster."""
    is_traced = torch.compiler.is_compiling()  # for ONNX, which takes any number of observations
    if not is_traced and pixels.dim() == 4 and len(pixels) >= LARGE_BATCH:
        # As bytes, a quarter of the memory traffic. `contiguous` with this memory format takes twice as long.
        pixels = torch.stack(pixels.unbind(1), dim=-1).movedim(-1, 1)
    return pixels.to(torch.float32)


def measure_normalization(
    network: nn.Module,
    environments: Environments,
    *,
    seed: int | None,
    played: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = lambda: 0.0,
) -> None:
    """
    Initialize a network's statistics, if it has any, from random play. The environments need a reset afterwards.

    `played` is called at each step, and `say` gets lines for the log. On the `clock`, in seconds, random play ends
    after MOST_SECONDS.
    """
    modules = [module for module in network.modules() if isinstance(module, NORMALIZATIONS)]
    if not modules:
        return
    is_measured_once = any(isinstance(module, RandomPlayNormalization) for module in modules)
    steps = max(-(-SAMPLES // environments.count), LEAST_STEPS) if is_measured_once else FIRST_STEPS
    say(f"random play measures what is normalized: {steps:,} steps, or those of {MOST_SECONDS:.0f} s")
    for stepped in _in_time(islice(random_play(environments, seed=seed), steps), say, clock):
        for module in modules:
            _measure(module, stepped)
        played()
    for module in modules:
        module.begin()


def _in_time(play: Iterable[Stepped], say: Callable[[str], None], clock: Callable[[], float]) -> Iterable[Stepped]:
    """The steps that are made in MOST_SECONDS, of which the log says how many there are so far."""
    began = said = clock()
    for step, stepped in enumerate(play, start=1):
        yield stepped
        now = clock()
        if now - began >= MOST_SECONDS:
            say(f"random play ends after {now - began:.0f} s: {step:,} steps have to do")
            return
        if now - said >= SAID_SECONDS:
            said = now
            say(f"random play: {step:,} steps after {now - began:.0f} s")


def _measure(module: RandomPlayNormalization | RunningNormalization | ReturnNormalization, stepped: Stepped) -> None:
    if isinstance(module, ReturnNormalization):
        continues = ~stepped.return_ends
        module.observe(torch.from_numpy(stepped.rewards)[None], torch.from_numpy(continues.astype(np.float32))[None])
    else:
        module.measure(torch.from_numpy(stepped.observations))


NORMALIZATIONS = (RandomPlayNormalization, RunningNormalization, ReturnNormalization)
