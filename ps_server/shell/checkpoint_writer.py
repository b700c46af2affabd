"""
Checkpoints on disk: a thread that writes them, the newest few sound ones and the best kept, the newest sound one found
again. A damaged one is moved aside, and never counted among those that are kept.

The thread gets immutable copies and answers through a queue; it never touches the machine.
"""

import contextlib
import logging
import math
import os
import queue
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from common.errors import CheckpointError, DamagedCheckpoint, SettingsError
from common.run_folder.checkpoint_file import read_checkpoint, remove_unfinished, write_checkpoint
from common.run_folder.checkpoint_folder import checkpoints_of, first_sound, newest_first, older_than
from common.run_folder.paths import ASIDE, BEST, MILESTONES, NEWEST, WRITING, checkpoint_name, milestone_name
from common.run_folder.writer_thread import WriterThread
from ps_server.machine.effects import SaveCheckpoint

MOST_WAITING = 16  # checkpoints that are handed over; the machine hands over one at a time
WRITER_NICENESS = 10  # more than theirs who serve, and not so far that one who waits for its GIL is kept waiting

log = logging.getLogger("ps-server")


@dataclass(frozen=True)
class Written:
    """What became of a checkpoint: a path, or why there is none."""

    path: Path
    error: str = ""


class CheckpointWriter:
    """Writes one checkpoint after another into `folder`, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        """
        Makes the folder, and removes what a killed server has left half-written. No other server may use the folder.

        Raises OSError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        self.results: queue.SimpleQueue[Written] = queue.SimpleQueue()
        self.longest_seconds = 0.0  # that one has taken so far
        self._folder = folder
        self._sound: set[Path] = set()  # written or read by this process
        self._writer = WriterThread("checkpoint-writer", most=MOST_WAITING)
        self._writer.do(_yield_to_others)

    def write(self, checkpoint: SaveCheckpoint) -> None:
        """Hand over a checkpoint; returns at once."""
        path = self._folder / checkpoint_name(checkpoint.global_steps)
        if not self._writer.do(partial(self._write_and_tell, path, checkpoint)):
            self.results.put(Written(path, error="those before it are not written yet"))

    def newest(self) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
        """The newest sound checkpoint that was written. Raises CheckpointError."""
        return newest_checkpoint(self._folder, self._folder)

    def close(self, *, within_seconds: float = math.inf) -> bool:
        """Whether what was handed over is written by then."""
        return self._writer.close(within_seconds=min(within_seconds, threading.TIMEOUT_MAX))

    def _write_and_tell(self, path: Path, checkpoint: SaveCheckpoint) -> None:
        begun = time.monotonic()
        try:
            self._write(path, checkpoint)
            self.results.put(Written(path))
        except Exception as error:  # whatever it is: the server waits for an answer to each checkpoint
            self.results.put(Written(path, error=str(error) or type(error).__name__))
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - begun)

    def _write(self, path: Path, checkpoint: SaveCheckpoint) -> None:
        write_checkpoint(path, checkpoint.vectors, checkpoint.record)
        self._sound.add(path)
        if checkpoint.best:
            _replace_with_link(self._folder / BEST, path)
        self._remove_older(path, NEWEST, keep=checkpoint.keep)
        if checkpoint.milestone is not None:
            milestone = self._folder / milestone_name(checkpoint.milestone)
            _replace_with_link(milestone, path)
            self._sound.add(milestone)
            self._remove_older(milestone, MILESTONES, keep=checkpoint.keep)

    def _remove_older(self, path: Path, kind: str, *, keep: int) -> None:
        """This one and the newest sound ones before it are kept. One that cannot be read takes nobody's place."""
        kept = 1
        for older in older_than(path, kind):
            if kept == keep:
                self._remove(older)
            elif older in self._sound or self._is_sound(older):
                kept += 1

    def _remove(self, path: Path) -> None:
        self._sound.discard(path)
        try:
            path.unlink()
        except OSError as error:
            log.warning("%s: cannot be removed: %s", path, error.strerror)

    def _is_sound(self, path: Path) -> bool:
        """Reads it; a damaged one is moved aside."""
        try:
            read_checkpoint(path)
        except CheckpointError as error:
            log.warning("%s", error)
            if isinstance(error, DamagedCheckpoint):
                _move_aside(path)
            return False
        self._sound.add(path)
        return True


def newest_checkpoint(
    run_folder: Path, checkpoint_folder: Path | None = None
) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
    """
    The newest sound checkpoint of a run. Newer ones, damaged or unreadable, are passed over, aloud, and moved aside:
    the run goes on from the one before them, and must never go back to them.

    They are in `checkpoint_folder` if that is given, in the run folder's `checkpoints`, or in the run folder itself.
    Raises CheckpointError when there is none.
    """
    paths = newest_first(checkpoint_folder) if checkpoint_folder else checkpoints_of(run_folder)
    found = first_sound(paths, read_checkpoint, lambda error: log.warning("%s; trying the one before it", error))
    if found is None:
        why = f"none of its {len(paths)} checkpoints is sound" if paths else "it has no checkpoints"
        raise CheckpointError(f"--resume {run_folder}: {why}")
    path, (vectors, record) = found
    for newer in paths[: paths.index(path)]:
        _move_aside(newer)
    return path, vectors, record


def _move_aside(path: Path) -> None:
    aside = path.with_name(path.name + ASIDE)
    try:
        path.rename(aside)
    except OSError as error:
        log.warning("%s: cannot be moved aside: %s", path, error.strerror)
    else:
        log.warning("%s: moved aside, to %s", path, aside.name)


def check_unused(folder: Path) -> None:
    """Raises SettingsError when a run has left checkpoints there: a new run's, with fewer steps, would be removed."""
    if newest_first(folder):
        raise SettingsError(f"{folder}: holds the checkpoints of a run; take another folder, or --resume that run")


def _yield_to_others() -> None:
    """Where cores are few the calling thread takes what is left of them: serving does not wait for checksums."""
    if sys.platform == "linux":  # elsewhere a priority is the whole process's
        here = threading.get_native_id()
        with contextlib.suppress(OSError):  # there are sandboxes in which nobody may
            # Never less than it is: that takes a right.
            niceness = os.getpriority(os.PRIO_PROCESS, here) + WRITER_NICENESS
            os.setpriority(os.PRIO_PROCESS, here, niceness)  # more than 19 is 19


def _replace_with_link(link: Path, target: Path) -> None:
    beside = link.parent / WRITING / link.name
    with contextlib.suppress(FileExistsError):
        beside.parent.mkdir()
    try:
        os.link(target, beside)
    except OSError:  # not every file system has hard links
        shutil.copyfile(target, beside)
    beside.rename(link)
    remove_unfinished(link.parent)
