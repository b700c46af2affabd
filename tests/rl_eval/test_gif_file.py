"""A GIF of any game has the right colours and duration."""

import io
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rl_eval import recording
from rl_eval.recording import gif_of

Screen = NDArray[np.uint8]


def noise(height: int, width: int, count: int, *, colours: int = 200) -> Iterator[Screen]:
    """Screens that no encoder can make small, of so many colours."""
    random = np.random.default_rng(1)
    palette = random.integers(0, 256, (colours, 3), dtype=np.uint8)
    for _ in range(count):
        yield palette[random.integers(0, colours, (height, width))]


def encoded(*screens: Screen, steps_per_second: float = 10.0) -> bytes:
    return gif_of(screens, steps_per_second)


def decoded(file: bytes) -> tuple[list[Screen], list[int]]:
    """Pictures, and the milliseconds that each lasts."""
    pictures, lasts = [], []
    with Image.open(io.BytesIO(file)) as gif:
        for number in range(gif.n_frames):
            gif.seek(number)
            pictures.append(np.asarray(gif.convert("RGB")))
            lasts.append(gif.info["duration"])
    return pictures, lasts


def test_every_colour_is_kept_also_one_that_comes_late() -> None:
    """A game may show a colour for the first time when a level is done."""
    screens = list(noise(240, 240, 3))
    late = np.full((240, 240, 3), (1, 2, 3), dtype=np.uint8)
    pictures, _ = decoded(encoded(*screens, late))
    assert all(np.array_equal(picture, screen) for picture, screen in zip(pictures, [*screens, late], strict=True))


@pytest.mark.parametrize("steps_per_second", [7.0, 10.0, 15.0, 17.3, 35.0, 50.0, 60.0, 500.0])
def test_a_gif_lasts_as_long_as_the_game(steps_per_second: float) -> None:
    screens = [np.full((240, 240, 3), number % 200, dtype=np.uint8) for number in range(100)]
    pictures, lasts = decoded(encoded(*screens, steps_per_second=steps_per_second))
    step = 1000 / steps_per_second
    assert sum(lasts) == pytest.approx(100 * step, abs=1000 / recording.MOST_FRAMES_PER_SECOND + 10)
    assert min(lasts) >= 40, "frames that come faster than viewers show them are left out"
    assert len(pictures) <= 100
