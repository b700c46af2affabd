"""
Where a server keeps its run: a run folder and a folder of checkpoints, which no other server uses meanwhile.

It knows nothing of what is written there.
"""

from pathlib import Path

from common.errors import SettingsError
from common.run_folder.folder_lock import FolderLocks
from common.run_folder.paths import CHECKPOINTS
from ps_server.shell.checkpoint_writer import check_unused


class RunStorage:
    """Both folders, locked until `close`. The run folder exists; the other is made if need be."""

    def __init__(self, folder: Path, *, checkpoints: Path | None, may_hold_a_run: bool) -> None:
        """
        Checkpoints go to FOLDER/checkpoints unless another folder is given.

        Raises SettingsError when a folder cannot be used, or a new run would find another run's checkpoints there.
        """
        self.folder = folder
        self.checkpoints = checkpoints or folder / CHECKPOINTS
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingsError(f"{self.checkpoints}: checkpoints cannot be kept there: {error.strerror}") from error
        self._is_kept = False
        self._locks = FolderLocks([folder, self.checkpoints])
        try:
            if not may_hold_a_run:
                check_unused(self.checkpoints)
        except BaseException:
            self.close()
            raise

    def keep(self) -> None:
        """A thread may still write there, whatever the rest of this process does: the locks end when it ends."""
        self._is_kept = True

    def close(self) -> None:
        """Let other servers have the folders."""
        if not self._is_kept:
            self._locks.close()
