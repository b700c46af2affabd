"""The rows of the files in a run folder."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Protocol, TypeVar

import msgspec

from ps_common.protocol.messages import Event
from ps_common.protocol.numbers import Count, Sequence
from ps_common.protocol.status import Status
from ps_common.run_folder.jsonl import rows_in
from ps_common.run_folder.paths import EPISODES

R = TypeVar("R", bound="Scored")
Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]  # seconds since 1970


class MetricsRow(Status, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The status of the run at one moment; workers have a file of their own."""

    time: Time


class Scored(Protocol):
    """The fields of a row of metrics that place a score in its run."""

    @property
    def global_steps(self) -> int: ...
    @property
    def minutes(self) -> float: ...
    @property
    def mean_return_100(self) -> float | None: ...


def scored_rows(rows: Iterable[R]) -> list[R]:
    """The rows with a score, without those that a resumed run lost when it went back to its checkpoint."""
    scored: list[R] = []
    for row in rows:
        if row.mean_return_100 is None:
            continue
        while scored and (scored[-1].global_steps > row.global_steps or scored[-1].minutes > row.minutes):
            scored.pop()
        scored.append(row)
    return scored


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
        return cls(
            time=time,
            epoch=epoch,
            number=event.number,
            kind=event.kind,
            text=event.text,
            worker_id=event.worker_id,
            global_steps=event.global_steps,
            minutes=event.minutes,
        )


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One full game, or consecutive games as their mean: long runs keep older games so.

    Games are numbered as they are reported, and each worker reports at most twice a second: T of a game may lie before
    that of another worker's game with a lower number. Games of one report share their minutes. A row of several games
    has the number, T and minutes of the last.
    """

    episode: Sequence  # 1, 2, 3, … in the run
    global_steps: Count  # T when it ended
    minutes: float  # when it was reported
    worker: str  # "" for games of several workers
    episode_return: float  # true, unclipped
    length: Annotated[float, msgspec.Meta(ge=0)]  # steps
    games: Sequence = 1


def played_once(rows: Iterable[EpisodeRow]) -> list[EpisodeRow]:
    """
    The games of a run, in order, each number once.

    A resumed run goes back to its checkpoint and plays later games again: the newer rows replace the older ones.
    """
    episodes: list[EpisodeRow] = []
    for row in rows:
        while episodes and episodes[-1].episode >= row.episode:
            episodes.pop()
        episodes.append(row)
    return episodes


def read_episodes(run_folder: Path) -> list[EpisodeRow]:
    """The games of a run, in order, each number once. Raises OSError."""
    return played_once(rows_in(run_folder / EPISODES, EpisodeRow))
