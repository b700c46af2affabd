"""
The first minute of a game as a GIF: at the speed of play, every pixel as it is or a whole number of times as large, and
never larger than a few megabytes.

Pictures wait as indices into one palette, so that a minute takes little memory and encoding little time. A GIF that
would be too large is made smaller first, then jerkier; it never plays slower.
"""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rl_worker.environments.interface import Screen

MOST_SECONDS = 60.0  # of play
MOST_PICTURES_PER_SECOND = 20.0  # viewers slow down what comes faster than 50, and 20 look smooth
MOST_BYTES = 4 * 2**20
MOST_SIDE, LEAST_SIDE = 480, 240  # pixels: larger screens are shown smaller, smaller ones larger
SMALLEST_SIDE = 80  # of a picture that is made smaller to save bytes
COLOURS = 256  # that a palette has
AT_ONCE = 2048  # new colours: a screen may bring tens of thousands
CENTISECOND = 10  # milliseconds: what a GIF counts in

Indices = NDArray[np.uint8]  # [height, width] into the palette


class GifFile:
    """Collects the screens of one game; `steps_per_second` is the speed of play."""

    def __init__(self, steps_per_second: float) -> None:
        self._every = max(1, round(steps_per_second / MOST_PICTURES_PER_SECOND))  # steps from picture to picture
        self._milliseconds = 1000 * self._every / steps_per_second
        self._steps = 0
        self._pictures: list[Indices] = []
        self._palette = _Palette()

    @property
    def is_full(self) -> bool:
        """Whether it shows as much as a GIF does."""
        return len(self._pictures) * self._milliseconds >= 1000 * MOST_SECONDS

    def add(self, screen: Screen) -> None:
        """The next step of the game; [height, width, 3]."""
        if self._steps % self._every == 0 and not self.is_full:
            self._pictures.append(self._palette.indices(_smaller(screen, -(-max(screen.shape[:2]) // MOST_SIDE))))
        self._steps += 1

    def encode(self) -> bytes:
        """The file. There must be a picture in it."""
        pictures, milliseconds = self._pictures, self._milliseconds
        enlarge = -(-LEAST_SIDE // max(pictures[0].shape))
        while True:
            encoded = self._encoded(pictures, enlarge, milliseconds)
            if len(encoded) <= MOST_BYTES or len(pictures) == 1:
                return encoded
            if enlarge > 1:
                enlarge = 1
            elif min(pictures[0].shape) >= 2 * SMALLEST_SIDE:
                pictures = [picture[::2, ::2] for picture in pictures]
            else:
                pictures, milliseconds = pictures[::2], 2 * milliseconds

    def _encoded(self, pictures: list[Indices], enlarge: int, milliseconds: float) -> bytes:
        images = []
        for picture in pictures:
            image = Image.fromarray(picture.repeat(enlarge, axis=0).repeat(enlarge, axis=1), "P")
            image.putpalette(self._palette.colours.astype(np.uint8).tobytes())
            images.append(image)
        # Rounded in turns up and down, so that all together are as long as the game.
        ends = [round((number + 1) * milliseconds / CENTISECOND) * CENTISECOND for number in range(len(pictures))]
        lasts = [end - before for before, end in zip([0, *ends], ends, strict=False)]
        file = io.BytesIO()
        images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=lasts, loop=0, optimize=False)
        return file.getvalue()


def _smaller(screen: Screen, times: int) -> Screen:
    """Means of squares of so many pixels a side: thin lines fade, and do not vanish."""
    if times == 1:
        return screen
    height, width = (side // times * times for side in screen.shape[:2])
    squares = screen[:height, :width].reshape(height // times, times, width // times, times, -1)
    means: Screen = squares.mean(axis=(1, 3)).astype(np.uint8)
    return means


class _Palette:
    """The colours of all pictures so far. As long as there is room each is kept as it is, then the nearest is taken."""

    def __init__(self) -> None:
        self.colours = np.zeros((0, 3), dtype=np.int32)
        self._places = np.zeros(2**24, dtype=np.uint16)  # by colour: its index and 1; 0: not met yet

    def indices(self, screen: Screen) -> Indices:
        """[height, width] of [height, width, 3]."""
        red, green, blue = (screen[..., channel].astype(np.int32) for channel in range(3))
        codes = red << 16 | green << 8 | blue
        places = self._places[codes]
        if not places.all():
            self._learn(np.unique(codes[places == 0]))
            places = self._places[codes]
        indices: Indices = (places - 1).astype(np.uint8)
        return indices

    def _learn(self, codes: NDArray[np.int32]) -> None:
        """Give each of these new colours [N] its place."""
        colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)
        room = COLOURS - len(self.colours)
        chosen = colours if len(colours) <= room else _representatives(colours, room // 2)  # later screens get the rest
        self.colours = np.concatenate([self.colours, chosen])
        for start in range(0, len(codes), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            distances = np.square(colours[some, None] - self.colours[None]).sum(axis=2)
            self._places[codes[some]] = distances.argmin(axis=1) + 1


def _representatives(colours: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """At most so many colours that stand for these [N, 3]."""
    if not count:
        return colours[:0]
    few = Image.fromarray(colours[None].astype(np.uint8)).quantize(count, dither=Image.Dither.NONE)
    return np.array(few.getpalette(), dtype=np.int32).reshape(-1, 3)[:count]
