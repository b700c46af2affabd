"""
What is drawn of a game: its screen, and beside it a panel with the score, the value estimate and the probabilities.

Screens are enlarged or reduced by whole factors, so that pixels stay even.
"""

from functools import cache

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from rl_agent.algorithms.algorithm import Outlook
from rl_agent.environments.interface import Screen
from rl_agent.environments.spaces import ActionSpace, DiscreteActions
from rl_agent.rollouts import Decision

SCREEN_HEIGHT, SCREEN_WIDTH = 480, 320  # pixels, at most; with its panel a frame fits into a GIF of recording.py
PANEL_WIDTH = 160
MARGIN = 8
TEXT_SIZE = 13
LINE_HEIGHT = 18
NAME_WIDTH = 66  # of an action, before its bar
MOST_LINES = 18  # of actions: those of a full Atari joystick
INK, TAKEN, PAPER, BAR = (220, 220, 220), (255, 200, 60), (24, 24, 28), (80, 110, 160)


def with_overlay(screen: Screen, actions: ActionSpace, *, score: float, outlook: Outlook, decision: Decision) -> Screen:
    """
    The first game's screen with its panel at the right, where the taken action is bright. Of many actions the most
    probable are shown. Actions of real numbers are shown as numbers.
    """
    game = fitted(screen, height=SCREEN_HEIGHT, width=SCREEN_WIDTH)
    lines = _action_lines(actions, outlook, decision)
    height = max(game.shape[0], 2 * MARGIN + LINE_HEIGHT * (3 + len(lines)))
    picture = Image.new("RGB", (game.shape[1] + PANEL_WIDTH, height + height % 2), PAPER)  # videos have even sides
    picture.paste(Image.fromarray(game), (0, 0))
    draw = ImageDraw.Draw(picture)
    draw.fontmode = "1"  # smooth edges would take the colours of a GIF's palette from the game
    left, top = game.shape[1] + MARGIN, MARGIN
    for text in (f"score {score:g}", f"value {float(outlook.values[0]):.3f}"):
        draw.text((left, top), text, fill=INK, font=font())
        top += LINE_HEIGHT
    top += LINE_HEIGHT // 2
    for name, share, is_taken in lines:
        _draw_line(draw, left, top, name, share, TAKEN if is_taken else INK)
        top += LINE_HEIGHT
    return np.asarray(picture)


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


def _action_lines(actions: ActionSpace, outlook: Outlook, decision: Decision) -> list[tuple[str, float | None, bool]]:
    """For each shown action its name, its probability, and whether it is taken."""
    if outlook.probabilities is None or not isinstance(actions, DiscreteActions):
        return [(f"action {float(part):+.2f}", None, True) for part in decision.actions[0][:MOST_LINES]]
    shares, taken = outlook.probabilities[0], int(decision.actions[0])
    shown = torch.topk(shares, min(MOST_LINES, actions.count)).indices.sort().values.tolist()
    return [(_name(actions, action), float(shares[action]), action == taken) for action in shown]


def _name(actions: DiscreteActions, action: int) -> str:
    name = actions.names[action] if actions.names else str(action)
    while font().getlength(name) > NAME_WIDTH - 4:
        name = name[:-1]
    return name


def reduced(screen: Screen, times: int) -> Screen:
    """Means of squares of `times` by `times` pixels: thin lines fade instead of vanishing."""
    if times == 1:
        return screen
    height, width = (side // times * times for side in screen.shape[:2])
    squares = screen[:height, :width].reshape(height // times, times, width // times, times, -1)
    means: Screen = squares.mean(axis=(1, 3)).astype(np.uint8)
    return means


def fitted(screen: Screen, *, height: int, width: int) -> Screen:
    """The screen as large as it fits into these pixels."""
    smaller = max(-(-screen.shape[0] // height), -(-screen.shape[1] // width))
    larger = min(height // screen.shape[0], width // screen.shape[1])
    return reduced(screen, smaller) if smaller > 1 else screen.repeat(larger, axis=0).repeat(larger, axis=1)
