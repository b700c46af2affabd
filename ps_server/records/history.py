"""The history of a run: rows of its status, of its workers and of its games, in files of bounded size."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ps_common.protocol.status import Status, mean_meters
from ps_common.run_folder.paths import EPISODES, METRICS, WORKERS
from ps_common.run_folder.run_rows import EpisodeRow
from ps_server.records.bounded_file import BoundedLinesFile
from ps_server.state.effects import RecordReport

# Seconds between two rows of the run grow with it, so that the curves of a short run have many points, too.
FIRST_SECONDS, EVERY_SECONDS = 0.5, 2.0
PARTS = 200  # rows are this part of the time trained apart, within those limits
WORKERS_EVERY_SECONDS = 60.0  # between two rows of each worker
METRICS_BYTES = 2**25  # the bound of each file: half of metrics.jsonl is the newest eleven hours
EPISODES_BYTES = 2**25  # the bound: a quarter of a million games


class MetricsFiles:
    """
    Appends the status of the run to RUN_DIR/metrics.jsonl, and that of each worker to RUN_DIR/workers.jsonl.

    `now` is seconds of any monotonic clock, `time_of_day` seconds since 1970.
    """

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        self._run = BoundedLinesFile(run_folder / METRICS, most_bytes=METRICS_BYTES)
        self._workers = BoundedLinesFile(run_folder / WORKERS, most_bytes=METRICS_BYTES)
        self._due = self._workers_due = 0.0
        self._meters: dict[str, float] = {}  # the newest, for the last row: by then the workers have left

    def add(self, status: Status, *, now: float, time_of_day: float) -> None:
        if now >= self._due:
            self._due = now + min(max(FIRST_SECONDS, 60 * status.minutes / PARTS), EVERY_SECONDS)
            meters = mean_meters(status)
            self._meters = meters or self._meters
            self._add_run(status, time_of_day, meters)
        if now >= self._workers_due and status.workers:
            self._workers_due = now + WORKERS_EVERY_SECONDS
            self._add_workers(status, time_of_day)

    def close(self, status: Status, *, time_of_day: float) -> None:
        self._add_run(status, time_of_day, mean_meters(status) or self._meters)
        self._add_workers(status, time_of_day)
        self._run.close()
        self._workers.close()

    def _add_run(self, status: Status, time_of_day: float, meters: Mapping[str, float]) -> None:
        row = msgspec.structs.asdict(status) | {"time": time_of_day, "meters": meters}
        del row["workers"], row["adjustments"], row["shard"]  # in files of their own; in the name of the folder
        self._run.add([row])

    def _add_workers(self, status: Status, time_of_day: float) -> None:
        when = {"minutes": status.minutes, "global_steps": status.global_steps, "time": time_of_day}
        self._workers.add([msgspec.to_builtins(worker) | when for worker in status.workers])


class EpisodesFile:
    """Appends the games of a run, as reported, to RUN_DIR/episodes.jsonl."""

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        self._lines = BoundedLinesFile(run_folder / EPISODES, most_bytes=EPISODES_BYTES)

    def add(self, report: RecordReport) -> None:
        rows = [
            EpisodeRow(
                episode=number,
                # A worker that names no T has its games where the report is; none has ended after that.
                global_steps=min(report.global_steps, episode.global_steps or report.global_steps),
                minutes=report.minutes,
                worker=report.worker_id,
                episode_return=episode.episode_return,
                length=episode.length,
            )
            for number, episode in enumerate(report.episodes, start=report.first_episode)
        ]
        if rows:
            self._lines.add(rows)

    def close(self) -> None:
        self._lines.close()
