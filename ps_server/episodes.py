"""Every full game of a run: one JSON object a line in RUN_DIR/episodes.jsonl, as they were reported."""

from pathlib import Path

import msgspec

from ps_server.effects import Reported
from ps_server.lines_file import LinesFile, rows_in

FILE_NAME = "episodes.jsonl"


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One full game. A worker reports at most twice a second: games of one report share T and minutes."""

    episode: int  # 1, 2, 3, … in the run
    global_steps: int  # T when it was reported
    minutes: float
    worker: str
    episode_return: float  # true, unclipped
    length: int  # steps


class EpisodesFile:
    """Appends to RUN_DIR/episodes.jsonl."""

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        self._lines = LinesFile(run_folder / FILE_NAME)

    def add(self, report: Reported) -> None:
        rows = [
            EpisodeRow(
                episode=number,
                global_steps=report.global_steps,
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


def read_episodes(run_folder: Path) -> list[EpisodeRow]:
    """
    The games of a run, each number once and in order. Raises OSError.

    A run that was resumed goes back to its checkpoint: what it had played after that is played anew.
    """
    episodes: list[EpisodeRow] = []
    for row in rows_in(run_folder / FILE_NAME, EpisodeRow):
        while episodes and episodes[-1].episode >= row.episode:
            episodes.pop()
        episodes.append(row)
    return episodes
