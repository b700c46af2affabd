"""The games of a run, as reported: RUN_DIR/episodes.jsonl."""

from pathlib import Path

from ps_common.run_folder.paths import EPISODES
from ps_common.run_folder.run_rows import EpisodeRow
from ps_server.machine.effects import Reported
from ps_server.records.bounded_file import BoundedLinesFile
from ps_server.records.thinning import means_of_games

MOST_BYTES = 2**25  # a quarter of a million lines: the newest games one a line, older ones as means


class EpisodesFile:
    """Appends to RUN_DIR/episodes.jsonl."""

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        self._lines = BoundedLinesFile(run_folder / EPISODES, most_bytes=MOST_BYTES, thin=means_of_games)

    def add(self, report: Reported) -> None:
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
