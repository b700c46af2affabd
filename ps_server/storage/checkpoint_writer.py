"""
Checkpoints on disk: a thread writes them, keeps the newest verified ones and the best, and removes older ones. A
damaged checkpoint is moved aside and does not count as kept.

The thread receives immutable copies and reports through a queue; it never touches the machine.
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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from ps_common.errors import CheckpointError, DamagedCheckpoint, Replaced, StoreError
from ps_common.program.output import WriterThread
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.record import Record, RecordWriter
from ps_common.run_folder.checkpoint_file import read_checkpoint, remove_unfinished, write_checkpoint
from ps_common.run_folder.checkpoint_folder import older_than
from ps_common.run_folder.paths import BEST, CANDIDATE, MILESTONES, NEWEST, WRITING, checkpoint_name, milestone_name
from ps_common.settings.regular_file import made_folder
from ps_server.state.effects import SaveCheckpoint
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.earlier_life import move_aside, newest_checkpoint

MOST_WAITING = 16  # checkpoints in the queue; the machine hands over one at a time
WRITER_NICENESS = 10  # above the serving thread, yet low enough that it soon gives back the GIL

log = logging.getLogger("ps-server")


@dataclass(frozen=True)
class Written:
    """
    The outcome of a checkpoint: where it is, and why it was not written, if so. `replaced_in` is the epoch of a server
    that has the run now, 0 without one.
    """

    place: str
    error: str = ""
    replaced_in: int = 0


class CheckpointWriter:
    """Writes one checkpoint after another into `folder`, in a thread of its own."""

    def __init__(
        self,
        folder: Path,
        store: CheckpointStore | None = None,
        *,
        begin_life: Callable[[Lineage], None] | None = None,
    ) -> None:
        """
        Creates the folder, and removes the unfinished files of a killed server. No other server may use the folder.
        With a `store`, a checkpoint counts as written when it is there. `begin_life` writes down the
        lineage of a standby that was promoted, before its first checkpoint.

        Raises OSError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)
        self.results: queue.SimpleQueue[Written] = queue.SimpleQueue()
        self.longest_seconds = 0.0  # what the slowest checkpoint so far took
        self._folder = folder
        self._store = store
        self._records = RecordWriter()
        self._begin_life = begin_life
        self._verified: set[Path] = set()  # written, or read and verified, by this process
        self._writer = WriterThread("checkpoint-writer", most=MOST_WAITING)
        self._writer.do(_lower_priority)

    def write(self, checkpoint: SaveCheckpoint) -> None:
        """Hand over a checkpoint; returns at once."""
        path = self._folder / checkpoint_name(checkpoint.global_steps, checkpoint.record.version)
        if not self._writer.do(partial(self._write_and_report, path, checkpoint)):
            self.results.put(Written(str(path), error="earlier checkpoints are not written yet"))

    def keep_candidate(self) -> None:
        """The candidate that was handed over last is the best checkpoint; returns at once."""
        self._writer.do(self._keep_candidate)

    def newest(self) -> tuple[Path, dict[str, Tensor], Record]:
        return newest_checkpoint(self._folder, self._folder)

    def close(self, *, within_seconds: float = math.inf) -> bool:
        """Finish. Returns whether all checkpoints that were handed over are written by then."""
        return self._writer.close(within_seconds=min(within_seconds, threading.TIMEOUT_MAX))

    def _write_and_report(self, path: Path, checkpoint: SaveCheckpoint) -> None:
        begun = time.monotonic()
        try:
            if (begin_life := self._begin_life) is not None:
                begin_life(checkpoint.record.lineage)
                self._begin_life = None
            self._write(path, checkpoint)
            self.results.put(Written(str(path) if self._store is None else self._put(self._store, path, checkpoint)))
        except Exception as error:  # whatever it is: the server waits for the outcome of each checkpoint
            replaced_in = error.epoch if isinstance(error, Replaced) else 0
            self.results.put(Written(str(path), error=str(error) or type(error).__name__, replaced_in=replaced_in))
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - begun)

    def _put(self, store: CheckpointStore, path: Path, checkpoint: SaveCheckpoint) -> str:
        milestone = "" if checkpoint.milestone is None else milestone_name(checkpoint.milestone)
        return store.put(
            path, checkpoint.record.lineage, best=checkpoint.best, milestone=milestone, keep=checkpoint.keep
        )

    def _write(self, path: Path, checkpoint: SaveCheckpoint) -> None:
        write_checkpoint(path, checkpoint.vectors, checkpoint.record, writer=self._records)
        self._verified.add(path)
        if checkpoint.best:
            _replace_with_link(self._folder / BEST, path)
        if checkpoint.candidate:
            _replace_with_link(self._folder / CANDIDATE, path)
        self._remove_older(path, NEWEST, keep=checkpoint.keep)
        if checkpoint.milestone is not None:
            milestone = self._folder / milestone_name(checkpoint.milestone)
            _replace_with_link(milestone, path)
            self._verified.add(milestone)
            self._remove_older(milestone, MILESTONES, keep=checkpoint.keep)

    def _keep_candidate(self) -> None:
        best = self._folder / BEST
        try:
            (self._folder / CANDIDATE).rename(best)
            if self._store is not None:
                self._store.put_best(best)
        except (OSError, StoreError) as error:
            log.warning("%s: the best checkpoint could not be kept: %s", best, error)

    def _remove_older(self, path: Path, kind: str, *, keep: int) -> None:
        """Keep this checkpoint and the newest verified ones before it, `keep` in all."""
        kept = 1
        for older in older_than(path, kind):
            if kept == keep:
                self._remove(older)
            elif older in self._verified or self._is_verified(older):
                kept += 1

    def _remove(self, path: Path) -> None:
        self._verified.discard(path)
        try:
            path.unlink()
        except OSError as error:
            log.warning("%s: cannot be removed: %s", path, error.strerror)

    def _is_verified(self, path: Path) -> bool:
        """Read a checkpoint and verify it. A damaged one is moved aside."""
        try:
            read_checkpoint(path)
        except CheckpointError as error:
            log.warning("%s", error)
            if isinstance(error, DamagedCheckpoint):
                move_aside(path)
            return False
        self._verified.add(path)
        return True


def _lower_priority() -> None:
    """Lower the calling thread's priority: where cores are few, serving must not wait for checksums."""
    if sys.platform == "linux":  # elsewhere priority belongs to the whole process
        here = threading.get_native_id()
        with contextlib.suppress(OSError):  # some sandboxes forbid it
            # Lowering niceness would take a privilege.
            niceness = os.getpriority(os.PRIO_PROCESS, here) + WRITER_NICENESS
            os.setpriority(os.PRIO_PROCESS, here, niceness)  # more than 19 is 19


def _replace_with_link(link: Path, target: Path) -> None:
    beside = made_folder(link.parent / WRITING) / link.name
    try:
        os.link(target, beside)
    except OSError:  # not every file system has hard links
        shutil.copyfile(target, beside)
    beside.rename(link)
    remove_unfinished(link.parent)
