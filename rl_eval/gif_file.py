"""
The first minute of a game as a GIF: at the speed of play, scaled by whole factors, and at most a few megabytes.

Frames are kept as indices into one shared palette, which saves memory and encoding time. If the file is too large, its
resolution is reduced first and its frame rate second; the speed of play never changes.
"""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rl_agent.environments.interface import Screen
from rl_eval.screens import reduced

MOST_SECONDS = 60.0  # of play
MOST_FRAMES_PER_SECOND = 20.0  # viewers slow down GIFs above 50 frames per second, and 20 look smooth
MOST_BYTES = 4 * 2**20
MOST_SIDE, LEAST_SIDE = 480, 240  # pixels: larger screens are reduced, smaller ones enlarged
SMALLEST_SIDE = 80  # pixels: frames are not reduced further to save bytes
COLOURS = 256  # size of a palette
COLOURS_AT_ONCE = 2048  # bounds the memory of a distance matrix: a screen may have tens of thousands of new colours
CENTISECOND = 10  # milliseconds: the unit of time in a GIF

Indices = NDArray[np.uint8]  # [height, width] into the palette


class GifFile:
    """Collects the screens of one game; `steps_per_second` is the speed of play."""

    def __init__(self, steps_per_second: float, *, most_side: int = MOST_SIDE) -> None:
        self._most_side = most_side
        self._every = max(1, round(steps_per_second / MOST_FRAMES_PER_SECOND))  # steps from frame to frame
        self._milliseconds = 1000 * self._every / steps_per_second
        self._steps = 0
        self._frames: list[Indices] = []
        self._palette = _Palette()

    @property
    def is_full(self) -> bool:
        """Whether the GIF has reached its maximum length."""
        return len(self._frames) * self._milliseconds >= 1000 * MOST_SECONDS

    def add(self, screen: Screen) -> None:
        """Add the screen [height, width, 3] of the next step."""
        if self._steps % self._every == 0 and not self.is_full:
            self._frames.append(self._palette.indices(reduced(screen, -(-max(screen.shape[:2]) // self._most_side))))
        self._steps += 1

    def encode(self) -> bytes:
        """The content of the file. Requires at least one screen."""
        frames, milliseconds = self._frames, self._milliseconds
        enlarge = -(-LEAST_SIDE // max(frames[0].shape))
        while True:
            encoded = self._encoded(frames, enlarge, milliseconds)
            if len(encoded) <= MOST_BYTES or len(frames) == 1:
                return encoded
            if enlarge > 1:
                enlarge = 1
            elif min(frames[0].shape) >= 2 * SMALLEST_SIDE:
                frames = [frame[::2, ::2] for frame in frames]
            else:
                frames, milliseconds = frames[::2], 2 * milliseconds

    def _encoded(self, frames: list[Indices], enlarge: int, milliseconds: float) -> bytes:
        images = []
        for frame in frames:
            image = Image.fromarray(frame.repeat(enlarge, axis=0).repeat(enlarge, axis=1), "P")
            image.putpalette(self._palette.colours.astype(np.uint8).tobytes())
            images.append(image)
        # End times are rounded, not durations: rounding errors do not add up.
        ends = [round((number + 1) * milliseconds / CENTISECOND) * CENTISECOND for number in range(len(frames))]
        durations = [end - before for before, end in zip([0, *ends], ends, strict=False)]
        file = io.BytesIO()
        images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)
        return file.getvalue()


class _Palette:
    """The palette of all frames. New colours are added exactly while entries are free, then mapped to the nearest."""

    def __init__(self) -> None:
        self.colours = np.zeros((0, 3), dtype=np.int32)
        self._entries = np.zeros(2**24, dtype=np.uint16)  # by colour: its index plus 1; 0: a new colour

    def indices(self, screen: Screen) -> Indices:
        """[height, width, 3] → [height, width]"""
        red, green, blue = (screen[..., channel].astype(np.int32) for channel in range(3))
        codes = red << 16 | green << 8 | blue
        entries = self._entries[codes]
        if not entries.all():
            self._add(np.unique(codes[entries == 0]))
            entries = self._entries[codes]
        indices: Indices = (entries - 1).astype(np.uint8)
        return indices

    def _add(self, codes: NDArray[np.int32]) -> None:
        """Give each of these new colours [N] an entry."""
        colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)
        free = COLOURS - len(self.colours)
        chosen = colours if len(colours) <= free else _representatives(colours, free // 2)  # later screens get the rest
        self.colours = np.concatenate([self.colours, chosen])
        for start in range(0, len(codes), COLOURS_AT_ONCE):
            some = slice(start, start + COLOURS_AT_ONCE)
            distances = np.square(colours[some, None] - self.colours[None]).sum(axis=2)
            self._entries[codes[some]] = distances.argmin(axis=1) + 1


def _representatives(colours: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """At most `count` colours that represent these [N, 3]."""
    if not count:
        return colours[:0]
    few = Image.fromarray(colours[None].astype(np.uint8)).quantize(count, dither=Image.Dither.NONE)
    return np.array(few.getpalette(), dtype=np.int32).reshape(-1, 3)[:count]
