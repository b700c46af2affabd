"""
The curves of one run as columns, in which form a page draws them, its events and its end.

The number of points is bounded, so a run of a week is as quick to draw as one of a minute. A table that is full keeps
points at about equal distances over T, and so the whole of a curve, however long it is.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ps_common.protocol.names import Count
from ps_common.protocol.status import STALENESS_BOUNDS, Histogram, Status, check_histogram, how_it_ended, mean_meters
from ps_common.run_folder.run_rows import EventRow, Time

MOST_POINTS = 4000  # of a table; it is thinned to half of them or fewer
PLACE = {"global_steps", "minutes", "episodes", "episode"}  # columns that say where a row is
MOST_COLUMNS = 256  # of a table; a server counts fewer names of meters
MOST_SENT = 1500  # of a table to a page, where it shows few runs
ALL_RUNS_SENT = 6000  # of one table of all runs together
LEAST_SENT = 100
MOST_EVENTS = 200
RECENT_STATUSES = 60  # a status comes each second


class MetricsPoint(msgspec.Struct):
    """A row of metrics.jsonl, as far as it is drawn."""

    time: Time
    minutes: float
    global_steps: Count
    episodes: Count = 0
    mean_return_100: float | None = None
    best_mean_return_100: float | None = None
    steps_per_second: float = 0.0
    updates_per_second: float = 0.0
    staleness_recent: float = 0.0
    gradient_norm: float = 0.0
    learning_rate: float = 0.0
    workers_alive: Count = 0
    staleness_counts: Histogram = ()
    meters: dict[str, float] = {}

    def __post_init__(self) -> None:
        check_histogram(self.staleness_counts)

    @classmethod
    def of(cls, status: Status, *, time: float) -> "MetricsPoint":
        """The row that metrics.jsonl would have of this status."""
        names = set(cls.__struct_fields__) - {"time", "meters"}
        return cls(time=time, meters=mean_meters(status), **{name: getattr(status, name) for name in names})

    def drawn(self) -> dict[str, Any]:
        """The numbers that are drawn as curves; of two with the same name, the run's."""
        row = msgspec.structs.asdict(self)
        del row["time"], row["staleness_counts"], row["meters"]
        return row | {name: value for name, value in self.meters.items() if name not in row}


class EpisodePoint(msgspec.Struct):
    """A row of episodes.jsonl, as far as it is drawn."""

    episode: Count
    global_steps: Count
    minutes: float
    episode_return: float
    length: float


class Table:
    """
    Rows in order of T, in columns. A row that goes back replaces the rows beyond it: the run was resumed there. Rows of
    other curves stay, since a program may add them one curve after another.

    The columns are bounded, since a server or a file may name others in each row: the first so many are kept.
    """

    def __init__(self, order: str) -> None:
        self._order = order
        self._rows: list[dict[str, Any]] = []
        self._newest: dict[str, float] = {}  # T of the newest row of each column
        self._went_back = False  # since it was asked last

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        """Add a row; returns what is kept of it."""
        new = [name for name in row if name not in self._newest]
        if dropped := set(new[MOST_COLUMNS - len(self._newest) :]):
            row = {name: value for name, value in row.items() if name not in dropped}
        at, own = row[self._order], row.keys() - PLACE
        if any(self._newest.get(name, at) > at for name in own):
            self._rows = [one for one in self._rows if one[self._order] <= at or not one.keys() & own]
            self._went_back = True
        self._newest |= dict.fromkeys(row, at)
        if self._rows and self._rows[-1][self._order] == at and not self._rows[-1].keys() & own:
            self._rows[-1] |= row  # one row of both: else thinning could leave one of two curves alone
        else:
            self._rows.append(dict(row))
        if len(self._rows) > MOST_POINTS:
            self._rows = _evenly(self._rows, self._order, MOST_POINTS // 2)
        return row

    def went_back(self) -> bool:
        """Whether a row has replaced others since the last call."""
        went_back, self._went_back = self._went_back, False
        return went_back

    def clear(self) -> None:
        self._rows.clear()
        self._newest.clear()

    def columns(self, most: int = MOST_SENT) -> dict[str, list[Any]]:
        """At most `most` rows spread evenly, the newest among them; a value that a row lacks is None."""
        rows = _evenly(self._rows, self._order, most)
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}


def _evenly(rows: list[dict[str, Any]], order: str, most: int) -> list[dict[str, Any]]:
    """
    At most `most` rows: the newest, and of each column the first value in each interval of T.

    The length of an interval is a power of two: what is kept stays the first value until that is doubled. So the past
    gets no sparser than the interval, however often a table is thinned.
    """
    if len(rows) <= most:
        return rows
    places = [row[order] for row in rows]
    length = 2 ** ((max(places) - min(places)) // most).bit_length()
    while len(rows) > most and length <= max(places):
        known = defaultdict[int, set[str]](set)  # columns by interval
        *older, newest = rows
        rows = []
        for row in older:
            if not (columns := known[row[order] // length]).issuperset(row):
                columns.update(row)
                rows.append(row)
        rows.append(newest)
        length *= 2
    return rows[-most:]


def most_sent(runs: int) -> int:
    """The points of a table that a page of `runs` runs gets of each: it draws all of them again and again."""
    return max(LEAST_SENT, min(MOST_SENT, ALL_RUNS_SENT // max(1, runs)))


class StalenessHistogram:
    """The histogram of a run: over all its updates, and over those of the last minute."""

    def __init__(self) -> None:
        self._all: tuple[int, ...] = ()
        self._recent: deque[tuple[int, ...]] = deque(maxlen=RECENT_STATUSES)

    def add(self, counts: tuple[int, ...]) -> None:
        """The counts of one status. Lower ones begin again: the run was resumed from a checkpoint before them."""
        if not counts:
            return
        if sum(counts) < sum(self._all):
            self._recent.clear()
        self._all = counts
        self._recent.append(counts)

    def pause(self) -> None:
        """No status comes for a while: the last minute begins with the next one."""
        self._recent.clear()

    def counts(self) -> dict[str, Any]:
        """By bound; the last count is of those above all bounds."""
        oldest = self._recent[0] if self._recent else self._all
        recent = [after - before for after, before in zip(self._all, oldest, strict=True)]
        return {"bounds": STALENESS_BOUNDS, "all": self._all, "recent": recent if any(recent) else []}


def ending_of(last: Status | None) -> dict[str, Any]:
    """What a page is told of the end of a run; None: it goes on, or nobody has seen its end."""
    return {"ended": how_it_ended(last) if last else "", "failed": bool(last and last.failed)}


def newest_events(events: Sequence[EventRow]) -> list[EventRow]:
    """The newest, in order; of checkpoints, which come by the minute, the last one."""
    saved = [event for event in events if event.kind == "checkpoint"][-1:]
    return [event for event in events if event.kind != "checkpoint" or event in saved][-MOST_EVENTS:]
