"""
The arbiter of a pair: the lock of the primary's run folder, on a disk that both servers share. A server holds that lock
for its life, so it is granted when the primary has ended; and while a standby holds it, no primary is resumed there.

A network file system ends the lock of a host that it has lost: then the arbiter is as sure as its lease.
"""

import contextlib
import queue
from pathlib import Path

from ps_common.errors import CheckpointError, SettingsError
from ps_common.program.output import WriterThread
from ps_common.protocol.names import LONGEST_TEXT, as_text
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.folder_lock import FolderLocks
from ps_server.standby.promotion import Claim
from ps_server.state.effects import ClaimRun, DropClaim
from ps_server.storage.earlier_life import read_lineage


class Arbiter:
    """Asks in a thread of its own: a network disk may block."""

    def __init__(self, folder: Path) -> None:
        """The run folder of the primary."""
        self.replies: queue.SimpleQueue[Claim] = queue.SimpleQueue()
        self._folder = folder
        self._locks: FolderLocks | None = None
        self._thread = WriterThread("arbiter", most=2)

    def do(self, effect: ClaimRun | DropClaim) -> None:
        self._thread.do(self._claim if isinstance(effect, ClaimRun) else self._release)

    def _claim(self) -> None:
        try:
            self.replies.put(self._granted())
        except (SettingsError, CheckpointError, OSError) as error:
            self._release()
            self.replies.put(Claim(as_text(f"says no: {error}", LONGEST_TEXT)))

    def _granted(self) -> Claim:
        """The claim, with the lock held. Raises SettingsError, CheckpointError or OSError where it is not granted."""
        lineage = read_lineage(self._folder)
        if lineage is None:
            raise SettingsError(f"{self._folder}: no server has kept a run there; is the disk mounted?")
        self._locks = self._locks or FolderLocks([self._folder])
        newest = next(iter(checkpoints_of(self._folder)), None)
        record = None if newest is None else read_checkpoint(newest)[1]
        return Claim(f"says that nobody serves {self._folder}", lineage=lineage, checkpoint=record)

    def _release(self) -> None:
        locks, self._locks = self._locks, None
        with contextlib.suppress(OSError):
            if locks is not None:
                locks.close()
