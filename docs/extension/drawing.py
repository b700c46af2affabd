"""
Two kinds of pictures as SVG: messages between programs over time, and boxes beside each other.

A picture is drawn on a light sheet of its own, so that it can be read on a dark page too. It needs no font that is not
there and no script.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

LANE, ROW, HEAD, MARGIN = 250, 46, 64, 20  # pixels
INK, SOFT, BLUE, RED, GREEN, PAPER = "#1f2933", "#7b8794", "#0b5cad", "#b42318", "#1f7a3d", "#fbfcfd"
FONT = 'font-family="system-ui, sans-serif"'


@dataclass(frozen=True)
class Arrow:
    """A message from one lane to another; one that is lost ends half way."""

    sender: int
    receiver: int
    text: str
    is_lost: bool = False


@dataclass(frozen=True)
class Note:
    """A box in a lane that says what it does."""

    lane: int
    text: str
    color: str = SOFT


Step = Arrow | Note


def sequence(title: str, lanes: Sequence[str], steps: Sequence[Step]) -> str:
    """A picture of messages: lanes from left to right, time from top to bottom."""
    width = LANE * len(lanes) + 2 * MARGIN
    height = HEAD + ROW * (len(steps) + 1)
    parts = []
    for number, name in enumerate(lanes):
        x = _x(number)
        parts.append(f'<line x1="{x}" y1="48" x2="{x}" y2="{height - 14}" stroke="{SOFT}" stroke-dasharray="3 4"/>')
        parts.append(f'<rect x="{x - 80}" y="14" width="160" height="34" rx="6" fill="#fff" stroke="{INK}"/>')
        parts.append(_text(x, 36, name, size=15, weight=600))
    for row, step in enumerate(steps):
        y = HEAD + ROW * row + 34
        parts += _arrow(step, y) if isinstance(step, Arrow) else _note(step, y)
    return _sheet(title, width, height, parts)


def _x(lane: int) -> float:
    return MARGIN + LANE * (lane + 0.5)


def _arrow(arrow: Arrow, y: float) -> list[str]:
    start, end = _x(arrow.sender), _x(arrow.receiver)
    color = RED if arrow.is_lost else BLUE
    if arrow.is_lost:
        end = start + (end - start) * 0.62
    tip = 7 if end > start else -7
    tail = end - tip
    head = f'<path d="M{tail} {y - 5} L{end} {y} L{tail} {y + 5}" fill="none" stroke="{color}" stroke-width="2"/>'
    if arrow.is_lost:
        head = f'<path d="M{end - 6} {y - 6} l12 12 M{end + 6} {y - 6} l-12 12" stroke="{color}" stroke-width="2.5"/>'
    line = f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="{color}" stroke-width="2"/>'
    return [line, head, _text((_x(arrow.sender) + _x(arrow.receiver)) / 2, y - 8, arrow.text, color=color)]


def _note(note: Note, y: float) -> list[str]:
    x, width = _x(note.lane), LANE - 16
    box = (
        f'<rect x="{x - width / 2}" y="{y - 22}" width="{width}" height="30" rx="5" fill="#fff" stroke="{note.color}"/>'
    )
    return [box, _text(x, y - 2, note.text, color=INK)]


@dataclass(frozen=True)
class Box:
    """A box with a title and lines, at a place in pixels."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    color: str = INK


@dataclass(frozen=True)
class Link:
    """A line between two points, with a text beside its middle."""

    x1: int
    y1: int
    x2: int
    y2: int
    text: str = ""


def boxes(title: str, width: int, height: int, found: Sequence[Box | Link]) -> str:
    """A picture of boxes and the links between them."""
    parts = []
    for one in found:
        if isinstance(one, Link):
            line = f'<line x1="{one.x1}" y1="{one.y1}" x2="{one.x2}" y2="{one.y2}" stroke="{BLUE}" stroke-width="2"/>'
            parts += [line, _text((one.x1 + one.x2) / 2, (one.y1 + one.y2) / 2 - 7, one.text, color=BLUE)]
            continue
        shape = f'x="{one.x}" y="{one.y}" width="{one.width}" height="{one.height}"'
        parts.append(f'<rect {shape} rx="8" fill="#fff" stroke="{one.color}" stroke-width="1.5"/>')
        middle = one.x + one.width / 2
        parts.append(_text(middle, one.y + 24, one.title, size=15, weight=600, color=one.color))
        parts += [_text(middle, one.y + 46 + 19 * row, line, size=13) for row, line in enumerate(one.lines)]
    return _sheet(title, width, height, parts)


def _text(x: float, y: float, text: str, *, size: int = 13, weight: int = 400, color: str = INK) -> str:
    style = f'{FONT} font-size="{size}" font-weight="{weight}" fill="{color}" text-anchor="middle"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'


def _sheet(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    paper = f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", paper, *parts, "</svg>\n"])
