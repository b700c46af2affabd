"""
Recordings of games at the speed of play: a video of the whole game, or a GIF of its first minute.

The agent receives the same observations as in training; the recording shows the rendered screen. A GIF is scaled by
whole factors and has at most a few megabytes: if it is too large, its resolution is reduced first and its frame rate
second; the speed of play never changes.
Beside the screen there may be a panel with the score, the value estimate and the probabilities.
"""

import io
import math
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import imageio.v2
import numpy as np
import torch
from PIL import Image, ImageChops, ImageDraw, ImageFont, ImageOps, ImageSequence, ImageStat

from ps_common.errors import SettingsError
from ps_common.run_folder.output_files import check_output, write_output
from ps_common.settings.run_spec import Environment
from rl_agent.algorithms.algorithm import Algorithm, Prediction
from rl_agent.environments.interface import Environments, Screen
from rl_agent.environments.make import closing, make_environments
from rl_agent.environments.spaces import ActionSpace, DiscreteActions
from rl_agent.rollouts import Decision
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

Timed = Iterator[tuple[float, Screen]]  # each screen with the second at which it leaves


def record(
    flag: str, path: Path, agent: Algorithm, settings: Environment, *, greedy: bool, seed: int, overlay: bool = False
) -> None:
    """Record one game. Raises SettingsError, which names the flag, if the file cannot be written."""
    with closing(make_environments(settings, count=1, with_screen=True)) as environments:
        screens = game_screens(agent, environments, greedy=greedy, seed=seed, overlay=overlay)
        write_screens(flag, path, screens, steps_per_second=environments.steps_per_second)


def write_screens(
    flag: str, path: Path, screens: Iterable[Screen], *, steps_per_second: float, most_side: int = MOST_SIDE
) -> None:
    """
    Write screens of one size, with even sides: as a GIF, or a video if the file has another suffix.

    Raises SettingsError, which names the flag, if the file cannot be written.
    """
    video: Any  # imageio's stubs give `get_writer` the type of a reader
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".gif":
            write_output(flag, path, gif_of(screens, steps_per_second, most_side))
            return
        check_output(flag, path)
        with imageio.v2.get_writer(path, fps=steps_per_second, macro_block_size=2) as video:
            for screen in screens:
                video.append_data(screen)
    except OSError as error:
        raise SettingsError(f"{flag} {path}: cannot be written: {error.strerror or error}") from error


def game_screens(
    agent: Algorithm, environments: Environments, *, greedy: bool, seed: int, overlay: bool = False
) -> Iterator[Screen]:
    """The screens of one game of the first environment, one before each step."""
    player = Player(agent, environments, greedy=greedy, seed=seed)
    score = 0.0
    for _ in range(MOST_SCREENS):
        screen, decision = environments.screen(), player.decide()
        if overlay:
            prediction = agent.predict(*player.grounds)
            screen = with_overlay(screen, environments.actions, score=score, prediction=prediction, decision=decision)
        yield screen
        stepped = player.take(decision)
        score += float(stepped.rewards[0])
        if stepped.terminated[0] or stepped.truncated[0]:
            return


def gif_of(screens: Iterable[Screen], steps_per_second: float, most_side: int = MOST_SIDE) -> bytes:
    """The content of a GIF of these screens [height, width, 3], one at least, at this speed of play."""
    every = max(1, round(steps_per_second / MOST_FRAMES_PER_SECOND))  # steps from frame to frame
    milliseconds = 1000 * every / steps_per_second
    shown = islice(islice(screens, 0, None, every), math.ceil(1000 * MOST_SECONDS / milliseconds))
    frames = _indexed(shown, most_side)
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


def _indexed(screens: Iterable[Screen], most_side: int) -> list[Image.Image]:
    """
    Screens as indices into palettes, which take a third of the memory of colours.

    Few colours are kept; for many those of an earlier frame serve where near, so that frames differ little.
    """
    frames: list[Image.Image] = []
    shared: Image.Image | None = None  # the newest frame with a palette for frames of too many colours
    for screen in screens:
        picture = Image.fromarray(screen).reduce(-(-max(screen.shape[:2]) // most_side))
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


def screens_of_gif(path: Path) -> Timed:
    """The screens of a recorded game. Raises SettingsError."""
    second = 0.0
    try:
        with Image.open(path) as gif:
            for frame in ImageSequence.Iterator(gif):
                second += frame.info.get("duration", 0) / 1000
                yield second, np.asarray(frame.convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}; move it away to make the film without it") from error


SCREEN_HEIGHT, SCREEN_WIDTH = 480, 320  # pixels, at most; with its panel a frame fits into a GIF of recording.py
PANEL_WIDTH = 160
MARGIN = 8
TEXT_SIZE = 13
LINE_HEIGHT = 18
NAME_WIDTH = 66  # of an action, before its bar
MOST_LINES = 18  # of actions: those of a full Atari joystick
INK, TAKEN, PAPER, BAR = (220, 220, 220), (255, 200, 60), (24, 24, 28), (80, 110, 160)


def with_overlay(
    screen: Screen, actions: ActionSpace, *, score: float, prediction: Prediction, decision: Decision
) -> Screen:
    """
    The first game's screen with its panel at the right, where the taken action is bright. Of many actions the most
    probable are shown. Actions of real numbers are shown as numbers.
    """
    game = fitted(screen, height=SCREEN_HEIGHT, width=SCREEN_WIDTH)
    lines = _action_lines(actions, prediction, decision)
    height = max(game.height, 2 * MARGIN + LINE_HEIGHT * (3 + len(lines)))
    picture = Image.new("RGB", (game.width + PANEL_WIDTH, height + height % 2), PAPER)  # videos have even sides
    picture.paste(game)
    draw = ImageDraw.Draw(picture)
    draw.fontmode = "1"  # smooth edges would take the colours of a GIF's palette from the game
    left, top = game.width + MARGIN, MARGIN
    for text in (f"score {score:g}", f"value {float(prediction.values[0]):.3f}"):
        draw.text((left, top), text, fill=INK, font=font())
        top += LINE_HEIGHT
    top += LINE_HEIGHT // 2
    for name, share, is_taken in lines:
        _draw_line(draw, left, top, name, share, TAKEN if is_taken else INK)
        top += LINE_HEIGHT
    return np.asarray(picture)


def captioned(screen: Screen, caption: str, size: tuple[int, int] | None = None) -> Screen:
    """The screen, as large as it fits into this width and height, with its caption below. Both sides are even."""
    picture = ImageOps.pad(Image.fromarray(screen), size, color=PAPER) if size else Image.fromarray(screen)
    cell = Image.new("RGB", (picture.width, picture.height + LINE_HEIGHT + MARGIN // 2), PAPER)
    cell.paste(picture)
    draw = ImageDraw.Draw(cell)
    draw.fontmode = "1"  # smooth edges would take the colours of a GIF's palette from the game
    draw.text((MARGIN // 2, picture.height), caption, fill=INK, font=font())
    return np.asarray(cell)


@cache
def font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font."""
    return ImageFont.load_default(TEXT_SIZE)


def _draw_line(
    draw: ImageDraw.ImageDraw, left: int, top: int, name: str, share: float | None, ink: tuple[int, int, int]
) -> None:
    """The name of an action, and its probability as a bar with a frame."""
    if share is not None:
        start, end = left + NAME_WIDTH, left + PANEL_WIDTH - 2 * MARGIN
        bottom = top + LINE_HEIGHT - 4
        draw.rectangle((start, top + 2, start + round(share * (end - start)), bottom), fill=BAR)
        draw.rectangle((start, top + 2, end, bottom), outline=ink)
        draw.text((start + 4, top), f"{100 * share:.0f} %", fill=INK, font=font())
    draw.text((left, top), name, fill=ink, font=font())


def _action_lines(
    actions: ActionSpace, prediction: Prediction, decision: Decision
) -> list[tuple[str, float | None, bool]]:
    """For each shown action its name, its probability, and whether it is taken."""
    if prediction.probabilities is None or not isinstance(actions, DiscreteActions):
        return [(f"action {float(part):+.2f}", None, True) for part in decision.actions[0][:MOST_LINES]]
    shares, taken = prediction.probabilities[0], int(decision.actions[0])
    shown = torch.topk(shares, min(MOST_LINES, actions.count)).indices.sort().values.tolist()
    return [(_name(actions, action), float(shares[action]), action == taken) for action in shown]


def _name(actions: DiscreteActions, action: int) -> str:
    name = actions.names[action] if actions.names else str(action)
    while font().getlength(name) > NAME_WIDTH - 4:
        name = name[:-1]
    return name


def fitted(screen: Screen, *, height: int, width: int) -> Image.Image:
    """
    The screen a whole number of times as small or as large, so that it fits into these pixels. Of a smaller one each
    pixel is a mean: thin lines fade instead of vanishing.
    """
    picture = Image.fromarray(screen)
    smaller = max(-(-picture.height // height), -(-picture.width // width))
    larger = min(height // picture.height, width // picture.width)
    return picture.reduce(smaller) if smaller > 1 else _scaled(picture, larger)
