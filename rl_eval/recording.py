"""
Recordings of games at the speed of play: a video of the whole game, or a GIF of its first minute.

The agent receives the same observations as in training; the recording shows the rendered screen. A GIF is scaled by
whole factors.
"""

import io
import math
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import imageio.v2
from PIL import Image

from ps_common.errors import SettingsError
from ps_common.run_folder.output_files import check_output, write_output
from ps_common.settings.run_spec import Environment
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.interface import Environments, Screen
from rl_agent.environments.make import closing, make_environments
from rl_eval.games import Player

MOST_SCREENS = 20_000  # a game that never ends must not fill the disk
MOST_SECONDS = 60.0  # of play in a GIF
MOST_FRAMES_PER_SECOND = 15.0  # a GIF of many colours has 20 kB a frame
MOST_SIDE, LEAST_SIDE = 480, 240  # pixels: larger screens are reduced, smaller ones enlarged
COLOURS = 256  # of a frame: the most that a GIF has
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
    frames = [_frame(screen) for screen in shown]
    # End times are rounded, not durations: rounding errors do not add up.
    ends = [round((number + 1) * milliseconds / CENTISECOND) * CENTISECOND for number in range(len(frames))]
    durations = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False)
    return file.getvalue()


def _frame(screen: Screen) -> Image.Image:
    """The screen as indices into a palette, which take a third of the memory of colours."""
    picture = Image.fromarray(screen).reduce(-(-max(screen.shape[:2]) // MOST_SIDE))
    enlarge = -(-LEAST_SIDE // max(picture.size))
    larger = picture.resize((enlarge * picture.width, enlarge * picture.height), Image.Resampling.NEAREST)
    return larger.quantize(COLOURS, dither=Image.Dither.NONE)
