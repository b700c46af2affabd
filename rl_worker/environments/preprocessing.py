"""
How frames become observations: one named scheme each, for all B environments at once. It steps nothing.

A scheme takes the whole frames of its family: of ALE in colour, of ViZDoom in gray. The stack of a scheme begins with
its first frame repeated; only ALE's own schemes, which run in C++ with their stack, begin with black.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.errors import SettingsError
from common.settings.run_spec import Environment

Frames = NDArray[np.uint8]  # [B, height, width] gray or [B, height, width, 3] RGB
Observed = NDArray[Any]  # [B, ...] uint8 or float32

ALE_FRAME = (210, 160)
LUMINANCE = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601
PONG_BACKGROUNDS = (144, 109)  # red of the two colours that Pong's field has


@dataclass(frozen=True)
class Scheme:
    """What a name stands for."""

    family: Literal["ale", "doom"]
    shape: tuple[int, ...]  # of one observed frame
    function: Callable[[Frames], Observed] | None  # None: ALE resizes, grays and stacks in C++
    looks: str  # for people
    dtype: type[np.uint8] | type[np.float32] = np.uint8


def breakout_crop(frames: Frames) -> Observed:
    """[B, 210, 160, 3] → [B, 84, 84] gray: rows 34 to 194, nearest neighbours."""
    nearest = np.arange(84) * 160 // 84
    colours = frames[:, (34 + nearest)[:, None], nearest]
    gray: Frames = (colours @ LUMINANCE).round().astype(np.uint8)
    return gray


def pong80(frames: Frames) -> Observed:
    """[B, 210, 160, 3] → [B, 6400] of 0 and 1: paddles and ball on every second pixel of rows 35 to 195."""
    red = frames[:, 35:195:2, ::2, 0]
    seen: NDArray[np.bool_] = (red != 0) & (red != PONG_BACKGROUNDS[0]) & (red != PONG_BACKGROUNDS[1])
    return seen.reshape(len(frames), -1).astype(np.float32)


def doom84(frames: Frames) -> Observed:
    """[B, 120, 160] → [B, 84, 84]: less 10 rows and 30 columns on each side, area means."""
    return _area_means(frames[:, 10:-10, 30:-30], 84)


def doom42(frames: Frames) -> Observed:
    """[B, 120, 160] → [B, 42, 42]: as doom84, at half the size, for a network that is a quarter as dear."""
    return _area_means(frames[:, 10:-10, 30:-30], 42)


SCHEMES = {
    "atari84": Scheme("ale", (84, 84), None, "gray, 84x84"),
    "atari42": Scheme("ale", (42, 42), None, "gray, 42x42"),
    "breakout-crop": Scheme("ale", (84, 84), breakout_crop, "gray, the field alone, 84x84"),
    "pong80": Scheme("ale", (6400,), pong80, "what is no background, 80x80, as a vector", np.float32),
    "doom84": Scheme("doom", (84, 84), doom84, "gray, the middle, 84x84"),
    "doom42": Scheme("doom", (42, 42), doom42, "gray, the middle, 42x42"),
}
AUTO = {"ale": "atari84", "doom": "doom84"}


def scheme_for(settings: Environment) -> Scheme:
    """The scheme that a run names, or its family's. Raises SettingsError naming those that there are."""
    family = settings.family
    name = AUTO.get(family, "none") if settings.preprocessing == "auto" else settings.preprocessing
    if name not in SCHEMES or SCHEMES[name].family != family:
        fitting = ", ".join(known for known, scheme in SCHEMES.items() if scheme.family == family)
        raise SettingsError(f"--preprocessing {settings.preprocessing}: not for {settings.id}; {fitting} are")
    return SCHEMES[name]


def described(scheme: Scheme, stack: int) -> str:
    """What an agent sees, in words."""
    if stack == 1:
        return f"1 frame: {scheme.looks}"
    start = "black before the first" if scheme.function is None else "the first repeated at the start"
    return f"{stack} frames: {scheme.looks}; {start}"


class FrameStack:
    """The last frames of each of B environments, oldest first: [B, stack, ...], or [B, stack · N] of vectors."""

    def __init__(self, scheme: Scheme, stack: int) -> None:
        assert scheme.function is not None, "ALE stacks for itself"
        self._observe = scheme.function
        self._stack = stack
        self.dtype: np.dtype[Any] = np.dtype(scheme.dtype)
        vector = len(scheme.shape) == 1
        self.shape: tuple[int, ...] = (stack * scheme.shape[0],) if vector else (stack, *scheme.shape)

    def begin(self, frames: Frames) -> Observed:
        """Observations of games that have just begun."""
        self._frames = self._repeated(self._observe(frames))  # [B, stack, ...]
        return self._joined(self._frames)

    def go_on(
        self, frames: Frames, ended: NDArray[np.bool_], last_frames: Frames | None
    ) -> tuple[Observed, Observed | None]:
        """
        Observations after a step, and the last ones of games that ended in it (None when none has).

        `frames` of games that ended are the first of the next, and in `last_frames` are their last.
        """
        before = self._frames[:, 1:]
        newest = self._observe(frames)
        self._frames = np.concatenate([before, newest[:, None]], axis=1)
        if last_frames is None:
            return self._joined(self._frames), None
        final = self._frames.copy()
        final[ended, -1] = self._observe(last_frames[ended])
        self._frames[ended] = self._repeated(newest[ended])
        return self._joined(self._frames), self._joined(final)

    def _repeated(self, observed: Observed) -> Observed:
        return np.repeat(observed[:, None], self._stack, axis=1)

    def _joined(self, frames: Observed) -> Observed:
        return frames.reshape(len(frames), *self.shape)


def _area_means(frames: Frames, size: int) -> Observed:
    """[B, height, width] → [B, size, size]: each pixel the mean of the area it covers."""
    rows, columns = _shares(frames.shape[1], size), _shares(frames.shape[2], size)
    means: Frames = (rows @ frames.astype(np.float32) @ columns.T).round().astype(np.uint8)
    return means


@cache
def _shares(pixels: int, larger_pixels: int) -> NDArray[np.float32]:
    """[larger_pixels, pixels]: how much of each larger pixel lies in each of a line of pixels; rows sum to 1."""
    size = pixels / larger_pixels
    edges, larger = np.arange(pixels), np.arange(larger_pixels)[:, None] * size
    overlap = np.minimum(edges + 1, larger + size) - np.maximum(edges, larger)
    shares: NDArray[np.float32] = (overlap.clip(0) / size).astype(np.float32)
    return shares
