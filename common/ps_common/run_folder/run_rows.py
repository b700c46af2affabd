"""
The rows of the files in a run folder, and how files of JSON objects, one a line, are read: a line at a time, however
long the file is. Damaged lines, as a killed writer leaves them, are skipped.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Generic, TypeVar

import msgspec

from ps_common.protocol.messages import Event
from ps_common.protocol.names import Count, Name, Sequence
from ps_common.protocol.status import Status
from ps_common.run_folder.paths import EPISODES, EVALUATIONS
from ps_common.settings.regular_file import opened

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")

# A row of a run of which its server has written none.
NOTHING = {"phase": "empty", "refused": {}} | dict.fromkeys(
    ("epoch", "not_modified", "checkpoint_version", "checkpoint_failures", "workers_alive"), 0
)
MOST_BYTES = 2**30  # of a file that is read whole; ps-server thins those that it writes at 32 MiB
LONGEST_LINE = TAIL_BYTES = 2**20  # of a file, searched for its last whole line
MOST_BYTES_AT_ONCE = 2**26  # more than the longest file of a run folder
KNOWN_BYTES = 2**10  # by which a file that is read on is known again: of several rows, no two of which are equal

Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # seconds since 1970


class MetricsRow(Status, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The status of the run at one moment; workers have a file of their own."""

    time: Time
    meters: dict[Name, float] = msgspec.field(default_factory=dict)  # losses, shares of time: means over living workers

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.so_far}>"

    @property
    def so_far(self) -> str:
        """How far the run is, in words."""
        scored = "" if self.mean_return_100 is None else f", mean return {self.mean_return_100:.2f}"
        failed = f", failed: {self.ending}" if self.failed else ""
        return f"{self.global_steps:,} steps, {self.minutes:.1f} minutes{scored}{failed}"


def scored_rows(rows: Iterable[MetricsRow]) -> list[MetricsRow]:
    """The rows with a score, without lost ones."""
    scored = (row for row in rows if row.mean_return_100 is not None)
    return without_lost(scored, lambda old, new: old.global_steps > new.global_steps or old.minutes > new.minutes)


def without_lost(rows: Iterable[T], is_lost: Callable[[T, T], bool]) -> list[T]:
    """
    The rows of a run, without those that it lost when it was resumed from its checkpoint.

    `is_lost(old, new)`: whether an old row is of a moment that a new one has displaced.
    """
    kept: list[T] = []
    for row in rows:
        while kept and is_lost(kept[-1], row):
            kept.pop()
        kept.append(row)
    return kept


class EventRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened in the run. Numbers begin at 1 in each epoch of the server."""

    time: Time
    epoch: Count
    number: Count
    kind: str  # note, warning, checkpoint, adjustment, end
    text: str
    worker_id: str = ""
    global_steps: Count
    minutes: float

    @classmethod
    def of(cls, event: Event, *, epoch: int, time: float) -> "EventRow":
        """The row of an event that was numbered in this epoch; `time` is seconds since 1970."""
        fields = {name: getattr(event, name) for name in cls.__struct_fields__ if name not in ("time", "epoch")}
        return cls(time=time, epoch=epoch, **fields)


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One full game; in files of release 0.2.0, also consecutive games as their mean.

    Games are numbered as they are reported, and each worker reports at most twice a second: T of a game may lie before
    that of another worker's game with a lower number. Games of one report share their minutes. A row of several games
    has the number, T and minutes of the last.
    """

    episode: Sequence  # 1, 2, 3, … in the run
    global_steps: Count  # T at its end
    minutes: float  # at its report
    worker: str  # "" for games of several workers
    episode_return: float  # true, unclipped
    length: Annotated[float, msgspec.Meta(ge=0)]  # steps
    games: Sequence = 1


class EvaluationRow(msgspec.Struct, frozen=True, kw_only=True):
    """Games that were played apart from training, with the weights of one checkpoint."""

    time: Time
    global_steps: Count  # T of the weights
    minutes: float  # of training, at that T
    episodes: Count  # of training, when the evaluation came
    version: Count  # of the weights
    games: Sequence
    mean_return: float
    low: float | None = None  # the bounds of the mean, with 95 % confidence
    high: float | None = None
    metrics: dict[Name, float] = {}  # means of further numbers of the games
    best: bool = False  # its weights were the best so far, and kept as such

    def values(self) -> dict[str, float]:
        """Its numbers as curves by name."""
        values = {"mean_return": self.mean_return} | self.metrics
        return {f"evaluation/{name}": value for name, value in values.items()}

    def drawn(self) -> dict[str, float]:
        """The values as a row of a table that has a column for each curve."""
        place = {"global_steps": self.global_steps, "minutes": self.minutes, "episodes": self.episodes}
        return place | self.values()


def read_evaluations(run_folder: Path) -> list[EvaluationRow]:
    """The evaluations of a run, in order, without lost ones. Raises OSError."""
    path = run_folder / EVALUATIONS
    rows = rows_in(path, EvaluationRow) if path.is_file() else ()
    return without_lost(rows, lambda old, new: old.version >= new.version)


class LoggedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A point of a curve that a Python program has added to the run."""

    time: Time
    global_steps: Count = 0  # T, as far as the program knew
    minutes: float = 0.0  # of the run, as far as the program knew
    episodes: Count = 0
    name: Name  # has a slash
    value: float

    def drawn(self) -> dict[str, float]:
        """The values as a row of a table that has a column for each curve."""
        place = {"global_steps": self.global_steps, "minutes": self.minutes, "episodes": self.episodes}
        return place | {self.name: self.value}


def played_once(rows: Iterable[EpisodeRow]) -> list[EpisodeRow]:
    """The games of a run, in order, each number once: a resumed run plays later games again."""
    return without_lost(rows, lambda old, new: old.episode >= new.episode)


def read_episodes(run_folder: Path) -> list[EpisodeRow]:
    """The games of a run, in order, each number once. Raises OSError."""
    return played_once(rows_in(run_folder / EPISODES, EpisodeRow))


def rows_in(path: Path, kind: type[R]) -> Iterator[R]:
    """The rows of a file. Raises OSError."""
    with opened(path, most_bytes=MOST_BYTES) as file:
        yield from rows_of(iter(partial(file.readline, LONGEST_LINE), b""), kind)


def rows_of(lines: Iterable[bytes], kind: type[R]) -> Iterator[R]:
    """The rows in lines."""
    decoder = msgspec.json.Decoder(kind)
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            yield decoder.decode(line)


def last_row(path: Path, kind: type[R]) -> R | None:
    """The last row of a file; None without one near its end, and where no such file can be read."""
    try:
        with opened(path) as file:
            lines = _tail(file).splitlines()
    except OSError:
        return None
    return next(rows_of(reversed(lines), kind), None)


def _tail(file: IO[bytes]) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL_BYTES))
    return file.read()


class RowsTail(Generic[R]):
    """
    The rows that were appended to a file since it was read last. The file need not exist yet.

    The writer thins a file that has become too long: it puts a shorter one in its place, which is read from its start.
    The file is the same one as long as what was read last stands where it was read: an inode's number may be used
    again.

    With `most_rows`, of more new rows than that only some are decoded, spread evenly: enough for a curve.
    """

    def __init__(self, path: Path, kind: type[R], *, most_rows: int | None = None) -> None:
        self._path = path
        self._kind = kind
        self._most_rows = most_rows
        self._offset = 0
        self._before = b""  # the newest bytes that were read, which end at the offset

    def read(self) -> tuple[list[R], bool]:
        """The new rows in order, the newest among them, and whether they begin with the file's first row."""
        try:
            with opened(self._path, most_bytes=MOST_BYTES) as file:
                file.seek(self._offset - len(self._before))
                if file.read(len(self._before)) != self._before:
                    self._offset, self._before = file.seek(0), b""
                is_new = self._offset == 0
                data = file.read(MOST_BYTES_AT_ONCE)
        except OSError:
            return [], False
        end = data.rfind(b"\n") + 1  # the writer may be in the middle of a line
        whole = data if end == 0 and len(data) == MOST_BYTES_AT_ONCE else data[:end]
        self._offset += len(whole)
        self._before = (self._before + whole[-KNOWN_BYTES:])[-KNOWN_BYTES:]
        lines = whole.splitlines()
        step = -(-len(lines) // (self._most_rows or len(lines) or 1)) or 1
        return list(rows_of(lines[::-1][::step][::-1], self._kind)), is_new
