"""
Which lines of a long file are kept when the older half of them has to become a quarter.

What is kept is spread evenly over the time that the lines cover: thinned again and again, a file holds the newest hours
line by line, and all the time before as points with equal distances.
"""

from collections.abc import Iterable, Sequence

import msgspec

from common.run_folder.jsonl import rows_of
from common.run_folder.run_rows import EpisodeRow


class _Stamp(msgspec.Struct):
    minutes: float
    worker_id: str = ""


def evenly_in_time(lines: Sequence[bytes]) -> list[bytes]:
    """About half of the lines: of each worker, or of the run, the first in each of some stretches of time."""
    stamps = [(line, stamp) for line in lines for stamp in rows_of([line], _Stamp)]
    if not stamps:
        return []
    start = min(stamp.minutes for _, stamp in stamps)
    span = max(stamp.minutes for _, stamp in stamps) - start
    series = len({stamp.worker_id for _, stamp in stamps})
    stretches = max(1, len(stamps) // (2 * series))
    kept, newest = [], dict[str, int]()
    for line, stamp in stamps:
        stretch = min(stretches - 1, int((stamp.minutes - start) / span * stretches)) if span else 0
        if newest.get(stamp.worker_id) != stretch:
            newest[stamp.worker_id] = stretch
            kept.append(line)
    return kept


def means_of_games(lines: Sequence[bytes]) -> list[bytes]:
    """About half as many lines: each has the mean of as many games that followed each other."""
    rows = played_once(rows_of(lines, EpisodeRow))
    most = -(-2 * sum(row.games for row in rows) // max(1, len(rows)))
    merged: list[EpisodeRow] = []
    for row in rows:
        if merged and merged[-1].games + row.games <= most:
            merged[-1] = _together(merged[-1], row)
        else:
            merged.append(row)
    return [msgspec.json.encode(row) + b"\n" for row in merged]


def played_once(rows: Iterable[EpisodeRow]) -> list[EpisodeRow]:
    """
    The games of a run, each number once and in order.

    A run that was resumed goes back to its checkpoint: what it had played after that is played anew.
    """
    episodes: list[EpisodeRow] = []
    for row in rows:
        while episodes and episodes[-1].episode >= row.episode:
            episodes.pop()
        episodes.append(row)
    return episodes


def _together(one: EpisodeRow, next_one: EpisodeRow) -> EpisodeRow:
    games = one.games + next_one.games
    share = next_one.games / games
    return EpisodeRow(
        episode=next_one.episode,
        global_steps=next_one.global_steps,
        minutes=next_one.minutes,
        worker=one.worker if one.worker == next_one.worker else "",
        episode_return=one.episode_return + share * (next_one.episode_return - one.episode_return),
        length=one.length + share * (next_one.length - one.length),
        games=games,
    )
