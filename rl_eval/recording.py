"""
Recordings of games at the speed of play: a video of the whole game, or a GIF of its first minute.

The agent receives the same observations as in training; the recording shows the rendered screen.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v2

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.interface import Environments, Screen
from rl_agent.environments.make import closing, make_environments
from rl_eval.gif_file import GifFile
from rl_eval.overlay import with_overlay
from rl_eval.player import Player

MOST_SCREENS = 20_000  # a game that never ends must not fill the disk


def record_game(
    agent: Algorithm, settings: Environment, path: Path, *, greedy: bool, seed: int, overlay: bool = False
) -> None:
    """Record one full game to an MP4 file. Raises SettingsError if the file cannot be written."""
    video: Any  # imageio's stubs give `get_writer` the type of a reader
    with closing(make_environments(settings, count=1, with_screen=True)) as environments:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with imageio.v2.get_writer(path, fps=environments.steps_per_second, macro_block_size=2) as video:
                for screen in game_screens(agent, environments, greedy=greedy, seed=seed, overlay=overlay):
                    video.append_data(screen)
        except OSError as error:
            raise SettingsError(f"--video {path}: cannot be written: {error}") from error


def record_gif(
    agent: Algorithm, environments: Environments, path: Path, *, greedy: bool, seed: int, overlay: bool = False
) -> None:
    """Record one game of the first of `environments`, which need a screen, to a GIF file. Raises OSError."""
    gif = GifFile(environments.steps_per_second)
    for screen in game_screens(agent, environments, greedy=greedy, seed=seed, overlay=overlay):
        gif.add(screen)
        if gif.is_full:
            break
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gif.encode())


def game_screens(
    agent: Algorithm, environments: Environments, *, greedy: bool, seed: int, overlay: bool
) -> Iterator[Screen]:
    """The screens of one game of the first environment, one before each step."""
    player = Player(agent, environments, greedy=greedy, seed=seed)
    score = 0.0
    for _ in range(MOST_SCREENS):
        screen, decision = environments.screen(), player.decide()
        if overlay:
            outlook = agent.outlook(*player.grounds)
            screen = with_overlay(screen, environments.actions, score=score, outlook=outlook, decision=decision)
        yield screen
        stepped = player.take(decision)
        score += float(stepped.rewards[0])
        if stepped.terminated[0] or stepped.truncated[0]:
            return
