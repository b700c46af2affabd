"""What a Python program sees of a run, by the files that the server writes: updates and a curve; and what it adds."""

import io
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.meters import RateLimit
from ps_common.protocol.names import is_name
from ps_common.run_folder.paths import EPISODES, LOGGED, METRICS, TENSORBOARD, records_folder
from ps_common.run_folder.run_rows import EpisodeRow, LoggedRow, MetricsRow, RowsTail, last_row, scored_rows
from ps_server.records.bounded_file import BoundedLinesFile
from ps_server.records.tensorboard import EventFile

LOOK_SECONDS = 0.2  # between two looks at files
MOST_NAMES, LONGEST_CURVE = 64, 60  # curves of one program, and characters of a name
VALUES_AT_ONCE, VALUES_PER_SECOND = 2000, 20.0
PLACE = ("global_steps", "minutes", "episodes")  # fields of a point, on whichever x axis
LOGGED_BYTES = 2**24  # the bound of logged.jsonl

log = logging.getLogger("ps_rl")


class Update(MetricsRow, frozen=True, kw_only=True):
    """A row of metrics, with the games that were reported since the row before it."""

    games: tuple[EpisodeRow, ...] = ()


class Updates:
    """The updates of a run that one reader has not had yet."""

    def __init__(self, folder: Path) -> None:
        """`folder` has the records of the run; its files need not exist yet."""
        self.folder = folder
        self._metrics, self._episodes = RowsTail(folder / METRICS, Update), RowsTail(folder / EPISODES, EpisodeRow)
        self._games: deque[EpisodeRow] = deque()
        self._newest: Update | None = None  # row, as it stands in the file; a thinned file is read again, up to it
        self._episode = 0  # of the newest game, for the same reason

    def read(self) -> list[Update]:
        """
        The new ones, in order: the rows behind those that were read, whatever the clock says that wrote them, and
        whether the run went back to a checkpoint.
        """
        rows, is_anew = self._metrics.read()
        if is_anew and self._newest in rows:
            rows = rows[len(rows) - rows[::-1].index(self._newest) :]
        games, is_new = self._episodes.read()
        self._games += [game for game in games if not is_new or game.episode > self._episode]
        self._episode = games[-1].episode if games else self._episode
        return [replace(row, games=tuple(self._games_until(row))) for row in rows]

    def _games_until(self, row: Update) -> list[EpisodeRow]:
        """The games that were reported before this row, which is the next one."""
        went_back = self._newest is not None and row.minutes < self._newest.minutes
        self._newest, games = row, []
        while self._games and went_back and self._games[0].minutes > row.minutes:  # of the time that was lost
            games.append(self._games.popleft())
        while self._games and self._games[0].minutes <= row.minutes:
            games.append(self._games.popleft())
        return games


def updates_of(run_folder: Path, is_live: Callable[[], bool], had: Updates | None = None) -> Iterator[Update]:
    """Each update so far, but for those that were read by `had`, then each as it comes, until the run is over."""
    updates, was_live = had, True
    while was_live:
        was_live = is_live()
        folder = records_folder(run_folder)  # another one where a run was resumed with other shards
        if (folder / METRICS).is_file() and (updates is None or updates.folder != folder):
            updates = Updates(folder)
        yield from updates.read() if updates else ()
        if was_live:
            time.sleep(LOOK_SECONDS)


@dataclass(frozen=True)
class Curve:
    """The mean return of the last 100 games over steps and minutes of training: float64 arrays, all [N]."""

    steps: NDArray[np.float64]
    minutes: NDArray[np.float64]
    returns: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Iterable[MetricsRow]) -> "Curve":
        """The curve of these rows."""
        points = [(row.global_steps, row.minutes, row.mean_return_100) for row in scored_rows(rows)]
        return cls(*np.array(points, np.float64).reshape(-1, 3).T)

    def __repr__(self) -> str:
        return (
            f"<Curve of {len(self.steps)} points{f', mean return {self.returns[-1]:.2f}' if len(self.steps) else ''}>"
        )

    def svg(self) -> str:
        """A picture of the curve; "" without games."""
        if not len(self.steps):
            return ""
        from matplotlib.figure import Figure  # takes a second; without pyplot, which would change a notebook's backend

        figure = Figure(figsize=(6, 2.5), layout="constrained")
        axes = figure.subplots()
        axes.plot(self.steps, self.returns)
        axes.set(xlabel="environment steps of all workers", ylabel="mean return of 100 games")
        axes.grid(alpha=0.3)
        text = io.StringIO()
        figure.savefig(text, format="svg")
        _, beginning, rest = text.getvalue().partition("<svg")  # without the head of a file
        return beginning + rest


class LoggedCurves:
    """Curves that a program adds to a run: rows of logged.jsonl, and points for TensorBoard where the run has them."""

    def __init__(self, folder: Path) -> None:
        """`folder` has the records of the run. Raises SettingsError when it cannot be written."""
        self._events: EventFile | None = None
        try:
            self._file = BoundedLinesFile(folder / LOGGED, most_bytes=LOGGED_BYTES)
            if (folder / TENSORBOARD).is_dir():
                # TensorBoard leaves a file for good when a newer one is beside it.
                last = last_row(folder / LOGGED, LoggedRow)
                newest = math.inf if last is None else last.global_steps
                self._events = EventFile(folder, LOGGED.partition(".")[0], newest=newest)
        except OSError as error:
            raise SettingsError(f"{folder}: curves cannot be kept there: {error.strerror}") from error
        self._lock = threading.Lock()
        self._limit = RateLimit(at_once=VALUES_AT_ONCE, per_second=VALUES_PER_SECOND)
        self._names: set[str] = set()
        self._has_warned = False

    def add(self, name: str, value: float, *, at: MetricsRow | None = None) -> None:
        """Add a point at the T of this row. One that is not finite, or beyond the rate, is dropped with a warning."""
        with self._lock:
            curve = self._curve(name)
            is_number = math.isfinite(value := float(value))
            if not is_number or not self._limit.allows(now=time.monotonic()):
                why = f"beyond {VALUES_PER_SECOND:g} points a second" if is_number else "no finite number"
                self._leave_out(f"{name} = {value}, {why}")
                return
            place: dict[str, Any] = {field: getattr(at, field) for field in PLACE} if at else {}
            row = LoggedRow(time=time.time(), name=curve, value=value, **place)
            self._file.add([row])
            if self._events is not None:
                self._events.add([(curve, value)], global_steps=row.global_steps)

    def close(self) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()

    def _curve(self, name: str) -> str:
        """The name of the curve, which has a slash as all custom ones have. Raises SettingsError."""
        if not isinstance(name, str) or len(name) > LONGEST_CURVE or not is_name(name):
            rule = f"1 to {LONGEST_CURVE} letters, digits and _.:@/+-, and begins with a letter or digit"
            raise SettingsError(f"run.log: {name!r}: the name of a curve has {rule}")
        if len(self._names | {name}) > MOST_NAMES:
            raise SettingsError(f"run.log: {name}: there are {MOST_NAMES} curves already")
        self._names.add(name)
        return name if "/" in name else f"logged/{name}"

    def _leave_out(self, what: str) -> None:
        if not self._has_warned:
            log.warning("run.log: %s, is left out; further ones are left out in silence", what)
        self._has_warned = True
