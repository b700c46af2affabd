"""
Scores that others published for the same protocol: sticky actions 0.25, the game's minimal actions, lives not ends.

They are training returns of Dopamine's agents (Castro et al. 2018), of five seeds, averaged over each million frames,
from https://github.com/google/dopamine/tree/master/baselines/atari/data (commit 5873f549, read in November 2026).
A run is compared with the million in which it ended: from the 10th to the 13th Rainbow's score in Qbert nearly doubles.
"""

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

SOURCE = "[Dopamine](https://github.com/google/dopamine/tree/master/baselines/atari/data)"
FILE = Path(__file__).with_suffix(".jsonl")
AGENTS = ("DQN", "DQN with Adam", "Rainbow")


@dataclass(frozen=True)
class Published:
    """Of one agent in one million of frames: the mean of its seeds, and the lowest and the highest."""

    million: int  # 1: the first
    mean: float
    low: float
    high: float


class _Curve(msgspec.Struct):
    """A line of the file: a number for each of the first 50 million frames."""

    game: str
    agent: str
    mean: list[float]
    low: list[float]
    high: list[float]


def published(game: str, agent: str, frames: float) -> Published | None:
    """The score in the million that ends at `frames` or holds them; None where nothing is listed for it."""
    curve = _curves().get((game, agent))
    million = max(1, math.ceil(frames / 1e6))
    if curve is None or million > len(curve.mean):
        return None
    at = million - 1
    return Published(million, curve.mean[at], curve.low[at], curve.high[at])


@cache
def _curves() -> dict[tuple[str, str], _Curve]:
    lines = msgspec.json.Decoder(_Curve).decode_lines(FILE.read_bytes())
    return {(curve.game, curve.agent): curve for curve in lines}
