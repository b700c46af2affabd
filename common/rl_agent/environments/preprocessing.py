"""
How frames become observations: named schemes, each applied to the frames of all B environments at once.

A scheme takes the whole frames of its family: ALE's in colour or gray, ViZDoom's in gray. A new episode fills the
frame stack with its first frame. ALE's own schemes, which stack in C++, fill it with black frames instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.families import FAMILIES
from ps_common.settings.run_spec import Environment

Frames = NDArray[np.uint8]  # [B, height, width] gray or [B, height, width, 3] RGB
Observed = NDArray[Any]  # [B, ...] uint8 or float32

ALE_FRAME = (210, 160)


@dataclass(frozen=True)
class Scheme:
    """One named way to turn frames into observations."""

    family: str
    shape: tuple[int, ...]  # of one observed frame
    function: Callable[[Frames], Observed] | None  # None: ALE resizes, converts to gray and stacks in C++
    looks: str  # for display
    dtype: type[np.uint8] | type[np.float32] = np.uint8
    gray: bool = False  # the function takes ALE's whole frames in gray, not in colour


# Model cards show the source of the functions for ALE's frames (rl_eval/card_program.py): they need nothing but numpy.


def breakout_crop(frames: np.ndarray) -> np.ndarray:
    """[B, 210, 160, 3] → [B, 84, 84] gray: rows 34 to 194, nearest neighbours."""
    nearest = np.arange(84) * 160 // 84
    colours = frames[:, (34 + nearest)[:, None], nearest]
    luminance = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
    return (colours @ luminance).round().astype(np.uint8)


def field40(frames: np.ndarray) -> np.ndarray:
    """[B, 210, 160] gray → [B, 40, 40]: rows 34 to 194, each new pixel the mean of 4x4, rounded down."""
    field = frames[:, 34:194].astype(np.uint16)
    rows = field[:, 0::4] + field[:, 1::4] + field[:, 2::4] + field[:, 3::4]
    sums = rows[..., 0::4] + rows[..., 1::4] + rows[..., 2::4] + rows[..., 3::4]
    means: np.ndarray = (sums >> 4).astype(np.uint8)
    return means


def pong80(frames: np.ndarray) -> np.ndarray:
    """[B, 210, 160, 3] → [B, 6400] of 0 and 1: paddles and ball, from every second pixel of rows 35 to 195."""
    red = frames[:, 35:195:2, ::2, 0]
    foreground: np.ndarray = (red != 0) & (red != 144) & (red != 109)  # 144 and 109: Pong's two backgrounds
    return foreground.reshape(len(frames), -1).astype(np.float32)


def doom84(frames: Frames) -> Observed:
    """[B, 120, 160] → [B, 84, 84]: area means, after 10 rows and 30 columns are cropped on each side."""
    return _area_means(frames[:, 10:-10, 30:-30], 84)


def doom42(frames: Frames) -> Observed:
    """[B, 120, 160] → [B, 42, 42]: doom84 at half the size, for a network at a quarter of the cost."""
    return _area_means(frames[:, 10:-10, 30:-30], 42)


SCHEMES = {
    "atari84": Scheme("ale", (84, 84), None, "gray, 84x84"),
    "atari42": Scheme("ale", (42, 42), None, "gray, 42x42"),
    "breakout-crop": Scheme("ale", (84, 84), breakout_crop, "gray, the field alone, 84x84"),
    "field40": Scheme("ale", (40, 40), field40, "gray, the field alone, 40x40", gray=True),
    "pong80": Scheme("ale", (6400,), pong80, "the foreground, 80x80, as a vector", np.float32),
    "doom84": Scheme("doom", (84, 84), doom84, "gray, the middle, 84x84"),
    "doom42": Scheme("doom", (42, 42), doom42, "gray, the middle, 42x42"),
}


def scheme_for(settings: Environment) -> Scheme:
    """The scheme that a run names, or its family's default. Raises SettingsError naming the schemes that fit."""
    family = settings.family
    name = FAMILIES[family].scheme if settings.preprocessing == "auto" else settings.preprocessing
    if name not in SCHEMES or SCHEMES[name].family != family:
        fitting = ", ".join(known for known, scheme in SCHEMES.items() if scheme.family == family)
        raise SettingsError(f"--preprocessing {settings.preprocessing}: not for {settings.id}; use one of {fitting}")
    return SCHEMES[name]


def described(scheme: Scheme, stack: int) -> str:
    """The observation in words."""
    if stack == 1:
        return f"1 frame: {scheme.looks}"
    start = "filled with black at the start" if scheme.function is None else "filled with the first at the start"
    return f"{stack} frames: {scheme.looks}; {start}"


class FrameStack:
    """The last frames of each of B environments, oldest first: [B, stack, ...], or [B, stack · N] of vectors."""

    def __init__(self, scheme: Scheme, stack: int) -> None:
        assert scheme.function is not None, "ALE's own schemes stack in C++"
        self._observe = scheme.function
        self._stack = stack
        self.dtype: np.dtype[Any] = np.dtype(scheme.dtype)
        vector = len(scheme.shape) == 1
        self.shape: tuple[int, ...] = (stack * scheme.shape[0],) if vector else (stack, *scheme.shape)

    def reset(self, frames: Frames) -> Observed:
        """Observations of the first frames of new games."""
        self._frames = self._repeated(self._observe(frames))  # [B, stack, ...]
        return self._stacked(self._frames)

    def step(
        self, frames: Frames, ended: NDArray[np.bool_], last_frames: Frames | None
    ) -> tuple[Observed, Observed | None]:
        """
        Observations after a step, and the final ones of games that `ended` in it (None if none has).

        For an ended game `frames` holds the first frame of the next game, and `last_frames` the last of the ended one.
        """
        before = self._frames[:, 1:]
        newest = self._observe(frames)
        self._frames = np.concatenate([before, newest[:, None]], axis=1)
        if last_frames is None:
            return self._stacked(self._frames), None
        final = self._frames.copy()
        final[ended, -1] = self._observe(last_frames[ended])
        self._frames[ended] = self._repeated(newest[ended])
        return self._stacked(self._frames), self._stacked(final)

    def _repeated(self, observed: Observed) -> Observed:
        return np.repeat(observed[:, None], self._stack, axis=1)

    def _stacked(self, frames: Observed) -> Observed:
        return frames.reshape(len(frames), *self.shape)


def _area_means(frames: Frames, size: int) -> Observed:
    """[B, height, width] → [B, size, size]: each new pixel is the mean of the area that it covers."""
    rows, columns = _shares(frames.shape[1], size), _shares(frames.shape[2], size)
    means: Frames = (rows @ frames.astype(np.float32) @ columns.T).round().astype(np.uint8)
    return means


@cache
def _shares(pixels: int, larger_pixels: int) -> NDArray[np.float32]:
    """[larger_pixels, pixels]: the share of each pixel of a line in each larger pixel; rows sum to 1."""
    size = pixels / larger_pixels
    edges, larger = np.arange(pixels), np.arange(larger_pixels)[:, None] * size
    overlap = np.minimum(edges + 1, larger + size) - np.maximum(edges, larger)
    shares: NDArray[np.float32] = (overlap.clip(0) / size).astype(np.float32)
    return shares
