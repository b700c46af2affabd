"""
Normalization of pixels, and the random play that every normalization begins with.

Most of a game's screen never changes, and a ball is one pixel: divided by 255, it is a ripple on a large constant.
Means and scales are statistics of the schema, so all workers, checkpoints and evaluations use the same ones. The worker
that seeds the run measures them in random play. Statistics that grow with every push are in running_statistics.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ps_common.errors import PsRlError
from rl_agent.environments.interface import Environments, random_play
from rl_agent.networks.running_statistics import CLIP, ReturnNormalization, RunningNormalization

SAMPLES = 3200  # observations of random play
MOST_SECONDS = 60.0  # of random play: where steps are slow, fewer observations have to do
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


def _float32(pixels: Tensor) -> Tensor:
    """float32 pixels; large batches of images get channels last, which makes the learner's convolutions 25 % faster."""
    is_traced = torch.compiler.is_compiling()  # for ONNX, which takes any number of observations
    if not is_traced and pixels.dim() == 4 and len(pixels) >= LARGE_BATCH:
        pixels = pixels.contiguous(memory_format=torch.channels_last)  # as bytes: a quarter of the memory traffic
    return pixels.to(torch.float32)


def measure_normalization(
    network: nn.Module,
    environments: Environments,
    *,
    seed: int,
    played: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = lambda: 0.0,
) -> None:
    """
    Initialize a network's statistics, if it has any, from random play. The environments need a reset afterwards.

    `played` is called at each step, and `say` gets lines for the log. On the `clock`, in seconds, random play ends
    after MOST_SECONDS. Steps with unsound numbers are left out; raises PsRlError when there are no others.
    """
    modules = [module for module in network.modules() if isinstance(module, NORMALIZATIONS)]
    if modules:
        play = _random_play(environments, seed, played, say, clock)
        for module in modules:
            if isinstance(module, ReturnNormalization):
                module.measure(play.rewards, play.continues)
            else:
                module.measure(play.observations)


@dataclass(frozen=True)
class Played:
    """SAMPLES steps of B environments, or those of MOST_SECONDS."""

    observations: Tensor  # [T · B, ...]
    rewards: Tensor  # [T, B]
    continues: Tensor  # [T, B] 0 where the step was the last of its episode, else 1


def _random_play(
    environments: Environments,
    seed: int,
    played: Callable[[], None],
    say: Callable[[str], None],
    clock: Callable[[], float],
) -> Played:
    began = said = clock()
    say(f"random play measures what is normalized: {SAMPLES:,} steps, or those of {MOST_SECONDS:.0f} s")
    seen, rewards, continues = [], [], []
    steps = range(environments.count, SAMPLES + environments.count, environments.count)
    for step, stepped in zip(steps, random_play(environments, seed=seed), strict=False):
        if (unsound := stepped.unsound) is None:
            seen.append(stepped.observations.copy())
            rewards.append(stepped.rewards if stepped.learner_rewards is None else stepped.learner_rewards)
            continues.append(np.where(stepped.terminated | stepped.truncated, np.float32(0), np.float32(1)))
        elif continues:
            continues[-1][:] = 0  # no return reaches across a step that is left out
        played()
        now = clock()
        if now - began >= MOST_SECONDS:
            say(f"random play ends after {now - began:.0f} s: {step:,} steps have to do")
            break
        if now - said >= SAID_SECONDS:
            said = now
            say(f"random play: {step:,} of {SAMPLES:,} steps after {now - began:.0f} s")
    if not seen:
        assert unsound is not None, "a step is left out for nothing else"
        name = next(iter(environments.description.values()), "the environment")
        raise PsRlError(f"{name}: no step of random play was sound: environment {unsound.row} returned {unsound.what}")
    return Played(
        torch.from_numpy(np.concatenate(seen)),
        torch.from_numpy(np.stack(rewards)),
        torch.from_numpy(np.stack(continues)),
    )


NORMALIZATIONS = (RandomPlayNormalization, RunningNormalization, ReturnNormalization)
