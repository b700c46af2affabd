"""
A film of learning: one game after each stretch of training, in a row or side by side, as a GIF or an MP4.

The games are the GIFs that the run has recorded. For a run without them a game is played with each kept checkpoint.
"""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imageio.v2
import numpy as np
from PIL import Image, ImageDraw, ImageSequence

from ps_common.errors import CheckpointError, SettingsError
from ps_common.run_folder.checkpoint_folder import best_first, newest_first, why_none
from ps_common.run_folder.paths import CHECKPOINTS, EPISODES, GAME_GIFS, GIFS, MILESTONES
from ps_common.run_folder.run_rows import EpisodeRow, rows_in
from rl_agent.environments.imports import import_modules
from rl_agent.environments.interface import Screen
from rl_agent.environments.make import closing, make_environments
from rl_eval.gif_file import MOST_SECONDS, GifFile
from rl_eval.overlay import INK, LINE_HEIGHT, MARGIN, PAPER, font
from rl_eval.recording import game_screens
from rl_eval.screens import fitted
from rl_eval.settings import EvaluationSettings
from rl_eval.trained import Trained, trained_as

FRAMES_PER_SECOND = 15.0
MOST_SCENE_SECONDS = 8.0  # of each game
MOST_SCENES = 9
CELL_HEIGHT, CELL_WIDTH = 220, 240  # pixels, at most, of games side by side
WHOLE_HEIGHT, WHOLE_WIDTH = 440, 480  # and of games in a row

Timed = Iterator[tuple[float, Screen]]  # each screen with the second at which it leaves

log = logging.getLogger("rl-eval")


@dataclass(frozen=True)
class Scene:
    """A game that was played after so much training."""

    global_steps: int
    minutes: float  # of training; NaN when the run folder does not say
    screens: Callable[[], Timed]

    @property
    def caption(self) -> str:
        minutes = "" if math.isnan(self.minutes) else f", {self.minutes:.1f} min"
        return f"{self.global_steps:,} steps{minutes}"


def write_film(path: Path, run_folder: Path, settings: EvaluationSettings) -> int:
    """Write the film of a run; returns the number of its games. Raises PsRlError."""
    if not run_folder.is_dir():
        raise SettingsError(f"--film: --checkpoint {run_folder} must be the folder of a run")
    scenes = _recorded(run_folder) or _played(run_folder, settings)
    scenes = _chosen(scenes, every_minutes=settings.film_minutes)
    seconds = min(MOST_SCENE_SECONDS, MOST_SECONDS / len(scenes))
    height, width = (CELL_HEIGHT, CELL_WIDTH) if settings.side_by_side else (WHOLE_HEIGHT, WHOLE_WIDTH)
    least = math.ceil(max(font().getlength(scene.caption) for scene in scenes)) + MARGIN
    cells = (_cells(scene, seconds=seconds, height=height, width=width, least_width=least) for scene in scenes)
    frames = _side_by_side(list(cells)) if settings.side_by_side else (frame for cell in cells for frame in cell)
    try:
        _write(path, frames)
    except OSError as error:
        raise SettingsError(f"--film {path}: cannot be written: {error.strerror or error}") from error
    return len(scenes)


def _recorded(run_folder: Path) -> list[Scene]:
    """The GIFs of a run, the oldest first; none unless there are two."""
    paths = sorted((run_folder / GIFS).glob(GAME_GIFS))
    if len(paths) < 2:
        return []
    steps = [int(path.stem.rpartition("-")[2]) for path in paths]
    minutes = _minutes_at(steps, run_folder / EPISODES)
    return [
        Scene(step, minute, lambda path=path: _screens_of_gif(path))  # type: ignore[misc]
        for path, step, minute in zip(paths, steps, minutes, strict=True)
    ]


def _minutes_at(steps: Sequence[int], episodes: Path) -> list[float]:
    """The minutes of training after these steps, by the run's table of episodes."""
    try:
        known = np.array([(row.global_steps, row.minutes) for row in rows_in(episodes, EpisodeRow)])
    except OSError:
        known = np.array([])
    if not known.size:
        return [math.nan] * len(steps)
    known = known[known[:, 0].argsort(kind="stable")]  # games of several workers are reported out of order
    minutes: list[float] = np.interp(np.array(steps), known[:, 0], known[:, 1]).tolist()
    return minutes


def _screens_of_gif(path: Path) -> Timed:
    second = 0.0
    try:
        with Image.open(path) as gif:
            for frame in ImageSequence.Iterator(gif):
                second += frame.info.get("duration", 0) / 1000
                yield second, np.asarray(frame.convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}; move it away to make the film without it") from error


def _played(run_folder: Path, settings: EvaluationSettings) -> list[Scene]:
    """A game with each sound checkpoint of a run, the oldest first."""
    paths = [*best_first(run_folder), *newest_first(run_folder / CHECKPOINTS, MILESTONES)]
    found: dict[int, Trained] = {}
    for path in paths:
        try:
            trained = trained_as(path)
        except CheckpointError as error:
            log.warning("%s; leaving it out", error)
        else:
            found[trained.global_steps] = trained
    if not found:
        raise CheckpointError(f"--checkpoint {run_folder}: {why_none(run_folder)}")
    log.info("a run shows more of its learning with --gif-every-episodes or --checkpoint-every-episodes")
    newest = found[max(found)]
    import_modules(settings.imports, newest.run, source=newest.origin, is_trusted=False)
    return [
        Scene(steps, found[steps].minutes, lambda one=found[steps]: _screens_of_game(one, settings))  # type: ignore[misc]
        for steps in sorted(found)
    ]


def _screens_of_game(trained: Trained, settings: EvaluationSettings) -> Timed:
    with closing(make_environments(trained.run.environment, count=1, with_screen=True)) as environments:
        greedy, seed = settings.greedy, settings.seed
        agent, _ = trained.agent(environments, epsilon=settings.epsilon, greedy=greedy, seed=seed)
        screens = game_screens(agent, environments, greedy=greedy, seed=seed, overlay=False)
        for number, screen in enumerate(screens, start=1):
            yield number / environments.steps_per_second, screen


def _chosen(scenes: list[Scene], *, every_minutes: float) -> list[Scene]:
    """The first and the last scene, and of those between one every so many minutes, at most MOST_SCENES in all."""
    if every_minutes and math.isnan(scenes[0].minutes):
        raise SettingsError(f"--film-minutes {every_minutes:g}: the run has no {EPISODES}; leave the flag out")
    apart: list[Scene] = []
    for scene in scenes:
        if not apart or not every_minutes or scene.minutes >= apart[-1].minutes + every_minutes:
            apart.append(scene)
    if apart[-1] is not scenes[-1]:
        apart.append(scenes[-1])
    rows = np.linspace(0, len(apart) - 1, min(MOST_SCENES, len(apart))).round().astype(int)
    return [apart[row] for row in rows]


def _cells(scene: Scene, *, seconds: float, height: int, width: int, least_width: int) -> list[Screen]:
    """The frames of a scene, each with its caption below; `least_width` holds the captions of all scenes."""
    frames: list[Screen] = []
    for until, screen in scene.screens():
        if len(frames) < until * FRAMES_PER_SECOND or not frames:
            cell = _captioned(fitted(screen, height=height, width=width), scene.caption, least_width)
            frames += [cell] * max(1, math.ceil(until * FRAMES_PER_SECOND) - len(frames))
        if len(frames) >= seconds * FRAMES_PER_SECOND:
            break
    return frames[: math.ceil(seconds * FRAMES_PER_SECOND)]


def _captioned(screen: Screen, caption: str, least_width: int) -> Screen:
    height, width = screen.shape[0], max(screen.shape[1], least_width)
    below = LINE_HEIGHT + MARGIN // 2
    cell = Image.new("RGB", (width + width % 2, height + below + (height + below) % 2), PAPER)  # videos have even sides
    cell.paste(Image.fromarray(screen), (0, 0))
    draw = ImageDraw.Draw(cell)
    draw.fontmode = "1"
    draw.text((MARGIN // 2, height), caption, fill=INK, font=font())
    return np.asarray(cell)


def _side_by_side(scenes: list[list[Screen]]) -> Iterator[Screen]:
    """Frames with a cell for each scene, nearly a square of them. A game that is over shows its last frame."""
    columns = math.ceil(math.sqrt(len(scenes)))
    rows = math.ceil(len(scenes) / columns)
    height, width = (max(scene[0].shape[axis] for scene in scenes) for axis in (0, 1))
    for number in range(max(map(len, scenes))):
        frame = np.full((rows * height, columns * width, 3), PAPER, dtype=np.uint8)
        for place, scene in enumerate(scenes):
            cell = scene[min(number, len(scene) - 1)]
            top, left = place // columns * height, place % columns * width
            frame[top : top + cell.shape[0], left : left + cell.shape[1]] = cell
        yield frame


def _write(path: Path, frames: Iterator[Screen]) -> None:
    """Write the film; frames that are smaller than the first fill its upper left. Raises OSError."""
    if path.suffix.lower() == ".gif":
        gif = GifFile(FRAMES_PER_SECOND, most_side=1200)
        for frame in _of_one_size(frames):
            gif.add(frame)
        path.write_bytes(gif.encode())
        return
    video: Any  # imageio's stubs give `get_writer` the type of a reader
    with imageio.v2.get_writer(path, fps=FRAMES_PER_SECOND, macro_block_size=2) as video:
        for frame in _of_one_size(frames):
            video.append_data(frame)


def _of_one_size(frames: Iterator[Screen]) -> Iterator[Screen]:
    size: tuple[int, ...] = ()
    for frame in frames:
        size = size or frame.shape
        whole = np.full(size, PAPER, dtype=np.uint8)
        height, width = min(size[0], frame.shape[0]), min(size[1], frame.shape[1])
        whole[:height, :width] = frame[:height, :width]
        yield whole
