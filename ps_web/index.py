"""
All runs of the page, and a line for each in its list: the ends of their files are read, and no curves.

Folders that come later are found, too. A line is read again when the files of its run have changed.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.names import printable
from ps_common.run_folder.endpoint_file import is_serving
from ps_common.run_folder.paths import ENDPOINT, METRICS, records_folder, run_folders_below, run_name, written_at
from ps_common.run_folder.run_rows import MetricsRow, last_row
from ps_common.settings.run_files import SETTINGS, settings_as_written
from ps_common.sockets.curve import ClientKeys
from ps_web.history import ending_of
from ps_web.run import WatchedRun
from ps_web.viewers import Viewers

MOST_SHOWN = 50  # runs whose curves one page has


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list. `id` is the same in each process; `run` is its number in this one."""

    run: int
    id: str
    name: str
    group: str = ""  # its experiment, or else its preset
    environment: str = ""
    live: bool = False  # its server answers, or its endpoint file is new
    written: float = 0.0  # when its newest row was, in seconds since 1970
    score: float | None = None  # mean return of the last 100 games
    best: float | None = None
    steps: int = 0
    minutes: float = 0.0
    ended: str = ""
    failed: bool = False


class RunIndex:
    """
    The runs in these folders, or below them, and those of these servers; one folder and one server are one run.

    `wait`: the folders are run folders, which may hold no run yet. Raises SettingsError where a folder has no run.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        servers: Sequence[str],
        viewers: Viewers,
        *,
        keys: ClientKeys | None = None,
        wait: bool = False,
    ) -> None:
        self.runs: list[WatchedRun] = []
        self._paths = () if wait else paths
        self._viewers, self._keys = viewers, keys
        self._known: set[Path] = set()
        self._lines: dict[int, tuple[tuple[float, float], RunLine]] = {}  # with the times of the files
        folders = list(map(records_folder, paths)) if wait else run_folders(paths)
        both = len(folders) == 1 and len(servers) == 1
        for folder in folders:
            self._add(folder, servers if both else ())
        for server in [] if both else servers:
            self.runs.append(WatchedRun(len(self.runs), server, viewers, folder=None, servers=[server], keys=keys))

    def look(self) -> list[WatchedRun]:
        """Look for run folders again. Returns the new ones."""
        before = len(self.runs)
        with contextlib.suppress(SettingsError, OSError):
            for folder in run_folders(self._paths):
                self._add(folder, ())
        return self.runs[before:]

    def lines(self) -> list[RunLine]:
        """One line for each run."""
        return [self._line(run) for run in self.runs]

    def newest(self) -> list[WatchedRun]:
        """At most MOST_SHOWN: runs of servers first, then those that were written to last."""
        lines = sorted(self.lines(), key=lambda line: (self.runs[line.run].folder is not None, -line.written))
        return [self.runs[number] for number in sorted(line.run for line in lines[:MOST_SHOWN])]

    def label(self, run: WatchedRun) -> str:
        """The name of a run; where others have the same, the path of its folder."""
        is_alone = sum(one.name == run.name for one in self.runs) == 1
        return run.name if is_alone or run.folder is None else printable(str(run.folder))

    def _add(self, folder: Path, servers: Sequence[str]) -> None:
        if (place := folder.resolve()) not in self._known:
            self._known.add(place)
            run = WatchedRun(
                len(self.runs), run_name(folder), self._viewers, folder=folder, servers=servers, keys=self._keys
            )
            self.runs.append(run)

    def _line(self, run: WatchedRun) -> RunLine:
        if run.folder is None:
            return RunLine(run=run.number, id=run.id, name=run.name, live=bool(run.status))
        times = (written_at(run.folder / METRICS), written_at(run.folder / SETTINGS))
        found, line = self._lines.get(run.number, (None, None))
        if line is None or found != times:
            line = _read(run, run.folder, max(times))
            self._lines[run.number] = (times, line)
        return msgspec.structs.replace(line, live=bool(run.status) or is_serving(run.folder))


def run_folders(paths: Sequence[Path]) -> list[Path]:
    """Each path itself where it is a run folder, else all run folders below it. Raises SettingsError."""
    folders: list[Path] = []
    for path in map(records_folder, paths):
        if any((path / name).exists() for name in (SETTINGS, METRICS, ENDPOINT)):
            folders.append(path)
            continue
        folders += run_folders_below(path)
    return list({folder.resolve(): folder for folder in folders}.values())


def _read(run: WatchedRun, folder: Path, written: float) -> RunLine:
    settings = settings_as_written(folder / SETTINGS)
    last = last_row(folder / METRICS, MetricsRow)
    of_last: dict[str, Any] = {}
    if last is not None:
        of_last = {
            "score": last.mean_return_100,
            "best": last.best_mean_return_100,
            "steps": last.global_steps,
            "minutes": last.minutes,
            **ending_of(last if last.ending else None),
        }
    environment = settings.get("environment")
    game = _text(environment.get("id")) if isinstance(environment, dict) else ""
    return RunLine(
        run=run.number,
        id=run.id,
        name=run.name,
        group=_text(settings.get("experiment")) or _text(settings.get("preset")),
        environment=game or (last.environment if last else ""),
        written=written,
        **of_last,
    )


def _text(value: Any) -> str:
    """A setting that is a text; "" where a file has something else in its place."""
    return value if isinstance(value, str) else ""
