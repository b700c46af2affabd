"""
Thinning: which lines of a long file are kept when its older half is reduced to a quarter.

The kept lines are spread evenly over time. A file that is thinned again and again holds the newest hours line by line,
and all earlier time as points at equal distances.
"""

from collections.abc import Sequence

import msgspec

from ps_common.run_folder.run_rows import EpisodeRow, EventRow, played_once, rows_of


class _Stamp(msgspec.Struct):
    minutes: float
    worker_id: str = ""


def evenly_in_time(lines: Sequence[bytes]) -> list[bytes]:
    """About half of the lines: for each worker, or for the run, the first line of each interval."""
    stamps = [(line, stamp) for line in lines for stamp in rows_of([line], _Stamp)]
    if not stamps:
        return []
    start = min(stamp.minutes for _, stamp in stamps)
    span = max(stamp.minutes for _, stamp in stamps) - start
    series = len({stamp.worker_id for _, stamp in stamps})
    intervals = max(1, len(stamps) // (2 * series))
    kept, newest = [], dict[str, int]()
    for line, stamp in stamps:
        interval = min(intervals - 1, int((stamp.minutes - start) / span * intervals)) if span else 0
        if newest.get(stamp.worker_id) != interval:
            newest[stamp.worker_id] = interval
            kept.append(line)
    return kept


def newest_events(lines: Sequence[bytes]) -> list[bytes]:
    """Half of the lines: the newest adjustments and ends of a run first, then the newest of the others."""
    kinds = [(number, row.kind) for number, line in enumerate(lines) for row in rows_of([line], EventRow)]
    lasting = [number for number, kind in kinds if kind in ("adjustment", "end")]
    others = [number for number, kind in kinds if kind not in ("adjustment", "end")]
    kept = sorted([*others, *lasting][-(len(lines) // 2) :]) if len(lines) > 1 else []
    return [lines[number] for number in kept]


def means_of_games(lines: Sequence[bytes]) -> list[bytes]:
    """About half as many lines, each the mean of an equal number of consecutive games."""
    rows = played_once(rows_of(lines, EpisodeRow))
    most = -(-2 * sum(row.games for row in rows) // max(1, len(rows)))
    merged: list[EpisodeRow] = []
    for row in rows:
        if merged and merged[-1].games + row.games <= most:
            merged[-1] = _together(merged[-1], row)
        else:
            merged.append(row)
    return [msgspec.json.encode(row) + b"\n" for row in merged]


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
