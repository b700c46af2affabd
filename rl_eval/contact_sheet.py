"""
The contact sheet of the best game: pictures at equal distances, with step and score, in one PNG.

The game is replayed by its actions in an environment that renders: evaluation itself renders nothing.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.interface import Screen
from rl_agent.environments.make import closing, make_environments
from rl_eval.games import Game, Replay
from rl_eval.overlay import INK, LINE_HEIGHT, MARGIN, PAPER, font
from rl_eval.screens import fitted

COLUMNS, ROWS = 5, 4
MOST_HEIGHT, MOST_WIDTH = 220, 240  # pixels of one picture


def write_contact_sheet(path: Path, environment: Environment, games: Sequence[Game], *, seed: int) -> None:
    """Write the sheet of the first of the best games, which were played with `seed`. Raises SettingsError."""
    best = max(games, key=lambda game: game.score)
    pictures = list(_pictures(environment, games, best, seed=seed))
    title = f"{environment.id}: the best of {len(games)} games, score {best.score:g} in {len(best.actions):,} steps"
    try:
        _sheet(title, pictures).save(path, "PNG")
    except OSError as error:
        raise SettingsError(f"--contact-sheet {path}: cannot be written: {error.strerror or error}") from error


def _pictures(settings: Environment, games: Sequence[Game], best: Game, *, seed: int) -> Iterator[tuple[str, Screen]]:
    """Captions and screens of the best game; the earlier games of its environment are replayed first."""
    count = min(COLUMNS * ROWS, len(best.actions))
    shown = set(np.linspace(0, len(best.actions) - 1, count).round().astype(int).tolist())
    with closing(make_environments(settings, count=1, with_screen=True)) as environments:
        replay = Replay(environments, seed=seed + best.environment)
        for game in games:
            if game is best:
                break
            if game.environment == best.environment:
                list(replay.steps(game.actions))
        yield _picture(0, 0.0, environments.screen())
        for step, (score, ended) in enumerate(replay.steps(best.actions), start=1):
            if step in shown and not ended:  # after the end the screen is the next game's
                yield _picture(step, score, environments.screen())


def _picture(step: int, score: float, screen: Screen) -> tuple[str, Screen]:
    return f"step {step:,}: {score:g}", fitted(screen, height=MOST_HEIGHT, width=MOST_WIDTH).copy()


def _sheet(title: str, pictures: Sequence[tuple[str, Screen]]) -> Image.Image:
    height, width = pictures[0][1].shape[:2]
    columns, rows = min(COLUMNS, len(pictures)), -(-len(pictures) // COLUMNS)
    across, down = width + MARGIN, height + LINE_HEIGHT + MARGIN
    top = LINE_HEIGHT + 2 * MARGIN
    size = (max(columns * across, round(font().getlength(title)) + MARGIN) + MARGIN, top + rows * down)
    sheet = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, MARGIN), title, fill=INK, font=font())
    for number, (caption, screen) in enumerate(pictures):
        x, y = MARGIN + number % COLUMNS * across, top + number // COLUMNS * down
        sheet.paste(Image.fromarray(screen), (x, y))
        draw.text((x, y + height), caption, fill=INK, font=font())
    return sheet
