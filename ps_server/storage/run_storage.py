"""
The storage of a run: a run folder and a folder of checkpoints, locked against other servers; perhaps an object store,
where a checkpoint is durable only then.

It knows nothing of the files in them.
"""

import shutil
from pathlib import Path

from common.errors import SettingsError
from common.protocol.lineage import Lineage
from common.run_folder.folder_lock import FolderLocks
from common.run_folder.paths import CHECKPOINTS, LINEAGE, REPLACED
from ps_server.shell.checkpoint_writer import check_unused
from ps_server.shell.lineage_file import write_lineage
from ps_server.storage.checkpoint_store import CheckpointStore


class RunStorage:
    """Both folders, locked until `close`. The run folder exists; the other is created if need be."""

    def __init__(
        self, folder: Path, *, checkpoints: Path | None, may_hold_a_run: bool, store: CheckpointStore | None = None
    ) -> None:
        """
        Checkpoints go to FOLDER/checkpoints unless another folder is given, and from there to the store.

        Raises SettingsError when a folder cannot be used, or a new run would find another run's checkpoints there.
        """
        self.folder = folder
        self.store = store
        self.checkpoints = checkpoints or folder / CHECKPOINTS
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"{self.checkpoints}: checkpoints cannot be kept there: {error.strerror}") from error
        self._outlives_us = False
        self._locks = FolderLocks([folder, self.checkpoints])
        try:
            if not may_hold_a_run:
                check_unused(self.checkpoints)
                if store is not None:
                    store.check_unused()
        except BaseException:
            self.close()
            raise

    def begin_life(self, lineage: Lineage) -> None:
        """Write the lineage of this life of the server, before it serves anybody. Raises SettingsError, StoreError."""
        if self.store is not None:
            self.store.claim(lineage)
        write_lineage(self.folder, lineage)

    def put_aside(self) -> Path:
        """
        Move the state of a server that was replaced into a folder inside, in place of an older one, and go on without.

        Raises SettingsError.
        """
        aside = self.folder / REPLACED
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            shutil.move(self.checkpoints, aside / CHECKPOINTS)
            (self.folder / LINEAGE).rename(aside / LINEAGE)
            self.checkpoints.mkdir()
        except OSError as error:
            raise SettingsError(f"{aside}: the state before cannot be kept there: {error.strerror}") from error
        self._locks.close()
        self._locks = FolderLocks([self.folder, self.checkpoints])
        return aside

    def keep(self) -> None:
        """Hold the locks until the process ends: a thread may still be writing there."""
        self._outlives_us = True

    def close(self) -> None:
        """Release the folders for other servers."""
        if not self._outlives_us:
            self._locks.close()
