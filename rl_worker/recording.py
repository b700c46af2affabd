"""
Games as pictures: the agent sees what it sees in training, the viewer sees the screen.

A video is the whole game, a GIF a small copy of it: shrunk, and thinned when the game is long.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v2
import imageio.v3

from common.errors import SettingsError
from common.run_spec import Environment
from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.environments import Environments, Screen, make_environments
from rl_worker.playing import Player

SCREENS_PER_SECOND = 30
MOST_SCREENS = 20_000  # a game that never ends must not fill the disk
GIF_MOST_STEPS = 2_000  # a GIF shows the beginning of a longer game
GIF_MOST_PICTURES = 300
GIF_MOST_PIXELS = 160  # of a side
GIF_MILLISECONDS = 1000 // SCREENS_PER_SECOND  # for a step


def record_game(agent: Algorithm, settings: Environment, path: Path, *, greedy: bool, seed: int) -> None:
    """Play one full game into an MP4 file. Raises SettingsError when that cannot be written."""
    environments = make_environments(settings, count=1, with_screen=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Typed as a reader by its own stubs; what `get_writer` returns appends.
        video: Any
        with imageio.v2.get_writer(path, fps=SCREENS_PER_SECOND, macro_block_size=2) as video:
            for screen in _game(agent, environments, greedy=greedy, seed=seed, most_steps=MOST_SCREENS):
                video.append_data(screen)
    except OSError as error:
        raise SettingsError(f"--video {path}: cannot be written: {error}") from error
    finally:
        environments.close()


def record_gif(agent: Algorithm, environments: Environments, path: Path, *, greedy: bool, seed: int) -> None:
    """Play one game in the first of `environments`, which have a screen, into a GIF file. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pictures: list[Screen] = []
    every = 1  # steps from one picture to the next
    for step, screen in enumerate(_game(agent, environments, greedy=greedy, seed=seed, most_steps=GIF_MOST_STEPS)):
        if step % every:
            continue
        shrink = -(-max(screen.shape[:2]) // GIF_MOST_PIXELS)
        pictures.append(screen[::shrink, ::shrink].copy())
        if len(pictures) > GIF_MOST_PICTURES:
            pictures, every = pictures[::2], 2 * every
    imageio.v3.imwrite(path, pictures, extension=".gif", duration=every * GIF_MILLISECONDS, loop=0)


def _game(
    agent: Algorithm, environments: Environments, *, greedy: bool, seed: int, most_steps: int
) -> Iterator[Screen]:
    """The screens of one game, each before a step is taken."""
    player = Player(agent, environments, greedy=greedy, seed=seed)
    for _ in range(most_steps):
        yield environments.screen()
        stepped = player.step()
        if stepped.terminated[0] or stepped.truncated[0]:
            return
