"""
GIFs of games of a run while it learns: rl-eval, beside the run, records a game with a checkpoint that is kept apart.

One game is recorded at a time, with the newest such checkpoint. A failure is reported, and the run goes on.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from ps_common.errors import PsRlError
from ps_common.program.child_processes import Child
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.paths import CHECKPOINTS, GIFS, MILESTONES, numbers_in, shard_folder
from ps_common.settings.regular_file import made_folder

LOG = "gifs.log"
WEIGHTS = ".weights.safetensors"  # of the game that is recorded: the server may delete the checkpoint meanwhile
LAST_SECONDS = 30.0  # for the last recording, when the run has ended


class GameGifs:
    """The recordings of the run in `run_folder`, while a block runs."""

    def __init__(
        self,
        run_folder: Path,
        every_episodes: int,
        shards: int,
        modules: Sequence[str],
        leaving: Callable[[], bool],
    ) -> None:
        """
        `every_episodes`: between two recordings, at least; 0: there are none. `modules` are those that rl-eval may
        import. At the end of the block the last game is recorded, unless this program is `leaving`.
        """
        self._run_folder = run_folder
        self._every_episodes = every_episodes
        self._has_shards = shards > 1
        self._checkpoints = shard_folder(run_folder, 1, shards) / CHECKPOINTS
        self._flags = ["--episodes", "1", "--gif", str(run_folder / GIFS)]
        self._flags += ["--import", *modules] if modules else []
        self._leaving = leaving
        self._episodes = self._newest()[0]  # of the newest checkpoint that had its chance
        self._child: Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self._leaving():
                self._record_last()
        finally:
            if self._child is not None:
                self._child.end(within_seconds=0.0)
            weights = self._run_folder / GIFS / WEIGHTS
            if not weights.parent.is_symlink():
                with contextlib.suppress(OSError):
                    weights.unlink()

    def look(self) -> list[str]:
        """Begin a recording if one is due. Returns a line on each that has failed."""
        if self._child is not None and self._child.exit_status is None:
            return []
        lines, episodes = self._failure(), self._episodes
        self._child = None
        self._episodes, newest = self._newest()
        if newest is not None and self._episodes // self._every_episodes > episodes // self._every_episodes:
            try:
                weights = self._weights(newest)
                self._child = Child("rl_eval", ["--checkpoint", str(weights), *self._flags], self._run_folder / LOG)
            except OSError as error:
                lines.append(f"no game was recorded: {newest}: {error.strerror}")
            except PsRlError as error:
                lines.append(f"no game was recorded: {error}")
        return lines

    def _record_last(self) -> None:
        lines, end = self.look(), time.monotonic() + LAST_SECONDS
        while self._child is not None and self._child.wait(within_seconds=max(0.0, end - time.monotonic())):
            lines += self.look()
        if self._child is not None:
            lines.append(f"the last game was not recorded within {LAST_SECONDS:g} s")
        for line in lines:
            print(line)

    def _newest(self) -> tuple[int, Path | None]:
        """The newest checkpoint that is kept apart, after the number of episodes in its name."""
        newest = newest_first(self._checkpoints, MILESTONES)[:1] if self._every_episodes else []
        return (numbers_in(newest[0].name)[0], newest[0]) if newest else (0, None)

    def _weights(self, newest: Path) -> Path:
        """What rl-eval reads: this checkpoint; of a run in shards the best of all. Raises OSError."""
        weights = made_folder(self._run_folder / GIFS) / WEIGHTS
        if self._has_shards:
            return self._run_folder
        weights.unlink(missing_ok=True)
        try:
            os.link(newest, weights)
        except OSError:  # not every file system has hard links
            shutil.copyfile(newest, weights)
        return weights

    def _failure(self) -> list[str]:
        if self._child is None or self._child.has_done_its_work:
            return []
        return [f"no game was recorded: {self._child.cause_of_death()} (its log: {self._child.log})"]
