"""
Checkpoints on disk: a thread that writes them, the newest few and the best kept, the newest sound one found again.

The thread gets immutable copies and answers through a queue; it never touches the machine.
"""

import contextlib
import logging
import os
import queue
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from common.checkpoint_file import read_checkpoint, write_checkpoint
from common.errors import CheckpointError, SettingsError
from common.run_folder import CHECKPOINTS
from ps_server.effects import SaveCheckpoint

BEST = "best.safetensors"
NEWEST, MILESTONES = "checkpoint-*.safetensors", "episodes-*.safetensors"
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
        """Makes the folder. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        self.results: queue.SimpleQueue[Written] = queue.SimpleQueue()
        self._folder = folder
        self._jobs: queue.SimpleQueue[SaveCheckpoint | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="checkpoint-writer")
        self._thread.start()

    def write(self, checkpoint: SaveCheckpoint) -> None:
        """Hand over a checkpoint; returns at once."""
        self._jobs.put(checkpoint)

    def close(self) -> None:
        """Finish what was handed over, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        _yield_to_others()
        while (checkpoint := self._jobs.get()) is not None:
            path = self._folder / f"checkpoint-{checkpoint.global_steps:012d}.safetensors"
            try:
                write_checkpoint(path, checkpoint.vectors, checkpoint.record)
                if checkpoint.best:
                    _replace_with_link(self._folder / BEST, path)
                if checkpoint.milestone is not None:
                    _replace_with_link(self._folder / f"episodes-{checkpoint.milestone:09d}.safetensors", path)
                for kind in (NEWEST, MILESTONES):
                    for old in _newest_first(self._folder, kind)[checkpoint.keep :]:
                        old.unlink()
                self.results.put(Written(path))
            except Exception as error:  # whatever it is: the server waits for an answer to each checkpoint
                self.results.put(Written(path, error=str(error) or type(error).__name__))
            del checkpoint  # its memory is used for the next one


def newest_checkpoint(
    run_folder: Path, checkpoint_folder: Path | None = None
) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
    """
    The newest sound checkpoint of a run; damaged ones are passed over, aloud.

    They are in `checkpoint_folder` if that is given, in the run folder's `checkpoints`, or in the run folder itself.
    Raises CheckpointError when there is none.
    """
    paths = _newest_first(checkpoint_folder or run_folder / CHECKPOINTS) or _newest_first(run_folder)
    for path in paths:
        try:
            vectors, record = read_checkpoint(path)
        except CheckpointError as error:
            log.warning("%s; trying the one before it", error)
        else:
            return path, vectors, record
    found = f"none of its {len(paths)} checkpoints is sound" if paths else "it has no checkpoints"
    raise CheckpointError(f"--resume {run_folder}: {found}")


def check_unused(folder: Path) -> None:
    """Raises SettingsError when a run has left checkpoints there: a new run's, with fewer steps, would be removed."""
    if _newest_first(folder):
        raise SettingsError(f"{folder}: holds the checkpoints of a run; take another folder, or --resume that run")


def _yield_to_others() -> None:
    """Where cores are few the calling thread takes what is left of them: serving does not wait for checksums."""
    if sys.platform == "linux":  # elsewhere a priority is the whole process's
        here = threading.get_native_id()
        with contextlib.suppress(OSError):  # there are sandboxes in which nobody may
            # Never less than it is: that takes a right.
            niceness = os.getpriority(os.PRIO_PROCESS, here) + WRITER_NICENESS
            os.setpriority(os.PRIO_PROCESS, here, niceness)  # more than 19 is 19


def _newest_first(folder: Path, kind: str = NEWEST) -> list[Path]:
    # By number: names of more digits than usual are longer.
    return sorted(folder.glob(kind), key=lambda path: (len(path.name), path.name), reverse=True)


def _replace_with_link(link: Path, target: Path) -> None:
    beside = link.with_name(f".{link.name}.tmp")
    beside.unlink(missing_ok=True)
    try:
        os.link(target, beside)
    except OSError:  # not every file system has hard links
        shutil.copyfile(target, beside)
    beside.rename(link)
