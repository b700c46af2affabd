"""
Pictures of several moments: a film of learning, and the contact sheet of the best game.

A film shows the GIFs that a run has recorded, or without them a game with each kept checkpoint. The game of a sheet is
replayed by its actions in an environment that renders: evaluation itself renders nothing.
"""

import io
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from PIL import Image

from ps_common.errors import CheckpointError, SettingsError
from ps_common.run_folder.checkpoint_folder import best_first, newest_first, why_none
from ps_common.run_folder.output_files import write_output
from ps_common.run_folder.paths import CHECKPOINTS, GAME_GIFS, GIFS, MILESTONES, written_at
from ps_common.run_folder.trained import Trained, trained_as
from ps_common.settings.run_spec import Environment
from rl_agent.environments.imports import import_modules
from rl_agent.environments.interface import Screen
from rl_agent.environments.make import closing, make_environments
from rl_eval.games import Game
from rl_eval.receipt import Replay
from rl_eval.recording import MOST_SECONDS, PAPER, Timed, captioned, game_screens, screens_of_gif, write_screens
from rl_eval.settings import EvaluationSettings
from rl_eval.trained import agent_of

FRAMES_PER_SECOND = 15.0
MOST_SCENE_SECONDS, MOST_SCENES = 8.0, 9
CELL, WHOLE = (240, 220), (480, 440)  # pixels, width and height: of games side by side, and of a game alone
COLUMNS, ROWS = 5, 4  # of a contact sheet

Scenes = dict[int, Callable[[], Timed]]  # games by the steps of training before them

log = logging.getLogger("rl-eval")


def write_film(path: Path, run_folder: Path, settings: EvaluationSettings) -> int:
    """Write the film of a run; returns the number of its games. Raises PsRlError."""
    if not run_folder.is_dir():
        raise SettingsError(f"--film: --checkpoint {run_folder} must be the folder of a run")
    scenes = _recorded(run_folder) or _played(run_folder, settings)
    shown = [sorted(scenes)[place] for place in _evenly(len(scenes), MOST_SCENES)]
    seconds, size = min(MOST_SCENE_SECONDS, MOST_SECONDS / len(shown)), CELL if settings.side_by_side else WHOLE
    cells = (_cells(scenes[steps](), f"{steps:,} steps", seconds=seconds, size=size) for steps in shown)
    frames = _side_by_side(list(cells)) if settings.side_by_side else chain.from_iterable(cells)
    write_screens("--film", path, frames, steps_per_second=FRAMES_PER_SECOND, most_side=1200)
    return len(shown)


def write_contact_sheet(path: Path, environment: Environment, games: Sequence[Game], *, seed: int) -> None:
    """Write the sheet of the first of the best games, which were played with `seed`. Raises SettingsError."""
    best = max(games, key=lambda game: game.score)
    title = f"{environment.id}: the best of {len(games)} games, score {best.score:g} in {len(best.actions):,} steps"
    sheet = captioned(_grid(list(_pictures(environment, games, best, seed=seed)), COLUMNS), title)
    picture = io.BytesIO()
    Image.fromarray(sheet).save(picture, "PNG")
    write_output("--contact-sheet", path, picture.getvalue())


def _recorded(run_folder: Path) -> Scenes:
    """The GIFs of a run; none unless there are two."""
    paths = list((run_folder / GIFS).glob(GAME_GIFS))
    return {int(path.stem.rpartition("-")[2]): partial(screens_of_gif, path) for path in paths if len(paths) > 1}


def _played(run_folder: Path, settings: EvaluationSettings) -> Scenes:
    """A game with each sound checkpoint of a run; of many, only those that are shown are read."""
    scenes: Scenes = {}
    # The times of the files stand for steps, which not all of their names have.
    paths = sorted([*best_first(run_folder), *newest_first(run_folder / CHECKPOINTS, MILESTONES)], key=written_at)
    for place in _evenly(len(paths), MOST_SCENES):
        try:
            trained = trained_as(paths[place])
        except CheckpointError as error:
            log.warning("%s; leaving it out", error)
            continue
        import_modules(settings.imports, trained.run, source=trained.origin, is_trusted=False)
        scenes[trained.global_steps] = partial(_screens_of_game, trained, settings)
    if not scenes:
        raise CheckpointError(f"--checkpoint {run_folder}: {why_none(run_folder)}")
    log.info("a run shows more of its learning with --gif-every-episodes or --checkpoint-every-episodes")
    return scenes


def _screens_of_game(trained: Trained, settings: EvaluationSettings) -> Timed:
    with closing(make_environments(trained.run.environment, count=1, with_screen=True)) as environments:
        greedy, seed = settings.greedy, settings.seed
        agent, _ = agent_of(trained, environments, epsilon=settings.epsilon, greedy=greedy, seed=seed)
        for number, screen in enumerate(game_screens(agent, environments, greedy=greedy, seed=seed), start=1):
            yield number / environments.steps_per_second, screen


def _cells(screens: Timed, caption: str, *, seconds: float, size: tuple[int, int]) -> list[Screen]:
    """The frames of a game, each with its caption below."""
    frames: list[Screen] = []
    for until, screen in screens:
        if len(frames) < until * FRAMES_PER_SECOND or not frames:
            frames += [captioned(screen, caption, size)] * max(1, math.ceil(until * FRAMES_PER_SECOND) - len(frames))
        if len(frames) >= seconds * FRAMES_PER_SECOND:
            break
    return frames[: math.ceil(seconds * FRAMES_PER_SECOND)]


def _side_by_side(games: list[list[Screen]]) -> Iterator[Screen]:
    """Frames with a cell for each game, nearly a square of them. A game that is over shows its last frame."""
    for number in range(max(map(len, games))):
        yield _grid([cells[min(number, len(cells) - 1)] for cells in games], math.ceil(math.sqrt(len(games))))


def _pictures(settings: Environment, games: Sequence[Game], best: Game, *, seed: int) -> Iterator[Screen]:
    """Moments of the best game; the earlier games of its environment are replayed first."""
    shown = set(_evenly(len(best.actions), COLUMNS * ROWS))
    with closing(make_environments(settings, count=1, with_screen=True)) as environments:
        replay = Replay(environments, seed=seed + best.environment)
        for game in games[: games.index(best)]:
            if game.environment == best.environment:
                list(replay.steps(game.actions))
        yield captioned(environments.screen(), "step 0: 0", CELL)
        for step, (score, ended) in enumerate(replay.steps(best.actions), start=1):
            if step in shown and not ended:  # after the end the screen is the next game's
                yield captioned(environments.screen(), f"step {step:,}: {score:g}", CELL)


def _evenly(count: int, most: int) -> list[int]:
    """At most so many of `count` places at equal distances, the first and the last among them."""
    return [round(place) for place in np.linspace(0, count - 1, min(most, count))]


def _grid(cells: Sequence[Screen], columns: int) -> Screen:
    """Cells of one size in rows."""
    blank = np.full_like(cells[0], PAPER)
    rows = [[*cells[first : first + columns], *[blank] * columns][:columns] for first in range(0, len(cells), columns)]
    return np.vstack([np.hstack(row) for row in rows])
