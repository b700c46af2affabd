"""
Recordings of games at the speed of play: a video of the whole game, or a GIF of its first minute.

The agent receives the same observations as in training; the recording shows the rendered screen. A GIF is scaled by
whole factors and has at most a few megabytes: if it is too large, its resolution is reduced first and its frame rate
second; the speed of play never changes.
"""

import io
import math
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import imageio.v2
from PIL import Image, ImageChops, ImageStat

from ps_common.errors import SettingsError
from ps_common.run_folder.output_files import check_output, write_output
from ps_common.settings.run_spec import Environment
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.interface import Environments, Screen
from rl_agent.environments.make import closing, make_environments
from rl_eval.games import Player

MOST_SCREENS = 20_000  # a game that never ends must not fill the disk
MOST_SECONDS = 60.0  # of play in a GIF
MOST_FRAMES_PER_SECOND = 20.0  # viewers slow down GIFs above 50 frames per second, and 20 look smooth
MOST_BYTES = 4 * 2**20
MOST_SIDE, LEAST_SIDE = 480, 240  # pixels: larger screens are reduced, smaller ones enlarged
SMALLEST_SIDE = 80  # pixels: frames are not reduced further to save bytes
COLOURS = 256  # of a frame: the most that a GIF has
NEAR = 8.0  # of 255, the mean difference: colours that are further from those of a frame are not shown for them
CENTISECOND = 10  # milliseconds: the unit of time in a GIF


def record(flag: str, path: Path, agent: Algorithm, settings: Environment, *, greedy: bool, seed: int) -> None:
    """
    Record one game: as a GIF, or a video if the file has another suffix.

    Raises SettingsError, which names the flag, if the file cannot be written.
    """
    video: Any  # imageio's stubs give `get_writer` the type of a reader
    with closing(make_environments(settings, count=1, with_screen=True)) as environments:
        screens = _screens(agent, environments, greedy=greedy, seed=seed)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix.lower() == ".gif":
                write_output(flag, path, gif_of(screens, environments.steps_per_second))
                return
            check_output(flag, path)
            with imageio.v2.get_writer(path, fps=environments.steps_per_second, macro_block_size=2) as video:
                for screen in screens:
                    video.append_data(screen)
        except OSError as error:
            raise SettingsError(f"{flag} {path}: cannot be written: {error.strerror or error}") from error


def _screens(agent: Algorithm, environments: Environments, *, greedy: bool, seed: int) -> Iterator[Screen]:
    """The screens of one game of the first environment, one before each step."""
    player = Player(agent, environments, greedy=greedy, seed=seed)
    for _ in range(MOST_SCREENS):
        yield environments.screen()
        stepped = player.take(player.decide())
        if stepped.terminated[0] or stepped.truncated[0]:
            return


def gif_of(screens: Iterable[Screen], steps_per_second: float) -> bytes:
    """The content of a GIF of these screens [height, width, 3], one at least, at this speed of play."""
    every = max(1, round(steps_per_second / MOST_FRAMES_PER_SECOND))  # steps from frame to frame
    milliseconds = 1000 * every / steps_per_second
    shown = islice(islice(screens, 0, None, every), math.ceil(1000 * MOST_SECONDS / milliseconds))
    frames = _indexed(shown)
    enlarge = -(-LEAST_SIDE // max(frames[0].size))
    while True:
        encoded = _encoded([_scaled(frame, enlarge) for frame in frames], milliseconds)
        if len(encoded) <= MOST_BYTES or len(frames) == 1:
            return encoded
        if enlarge > 1:
            enlarge = 1
        elif min(frames[0].size) >= 2 * SMALLEST_SIDE:
            frames = [_scaled(frame, 0.5) for frame in frames]
        else:
            frames, milliseconds = frames[::2], 2 * milliseconds


def _indexed(screens: Iterable[Screen]) -> list[Image.Image]:
    """
    Screens as indices into palettes, which take a third of the memory of colours.

    Few colours are kept; for many those of an earlier frame serve where near, so that frames differ little.
    """
    frames: list[Image.Image] = []
    shared: Image.Image | None = None  # the newest frame with a palette for frames of too many colours
    for screen in screens:
        picture = Image.fromarray(screen).reduce(-(-max(screen.shape[:2]) // MOST_SIDE))
        is_rich = picture.getcolors(COLOURS) is None
        indexed = picture.quantize(palette=shared, dither=Image.Dither.NONE) if is_rich and shared else None
        if indexed is None or _difference(picture, indexed) > NEAR:
            indexed = picture.quantize(COLOURS, dither=Image.Dither.NONE)
            shared = indexed if is_rich else shared
        frames.append(indexed)
    return frames


def _difference(picture: Image.Image, indexed: Image.Image) -> float:
    """The mean difference of the colour that differs most."""
    return max(ImageStat.Stat(ImageChops.difference(picture, indexed.convert("RGB"))).mean)


def _scaled(frame: Image.Image, times: float) -> Image.Image:
    return frame.resize((int(times * frame.width), int(times * frame.height)), Image.Resampling.NEAREST)


def _encoded(frames: list[Image.Image], milliseconds: float) -> bytes:
    # End times are rounded, not durations: rounding errors do not add up.
    ends = [round((number + 1) * milliseconds / CENTISECOND) * CENTISECOND for number in range(len(frames))]
    durations = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False)
    return file.getvalue()
