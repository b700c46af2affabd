"""
The storage of a run: a run folder and a folder of checkpoints, locked against other servers; perhaps an object store,
where a checkpoint is durable only then.

It knows nothing of the files in them.
"""

import contextlib
import shlex
import shutil
from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.protocol.lineage import Lineage
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.folder_lock import FolderLocks
from ps_common.run_folder.paths import BEST, CHECKPOINTS, LINEAGE, REPLACED, SHARD_NAME, STORE, write_whole
from ps_common.settings.regular_file import content_of, flush, made_folder
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.earlier_life import check_unused, write_lineage


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
            if checkpoints is None:
                made_folder(self.checkpoints)
            else:
                checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = f"{error.strerror}; --checkpoint-dir names another folder"
            raise SettingsError(f"{self.checkpoints}: checkpoints cannot be kept there: {why}") from error
        self._outlives_us = False
        self._locks = FolderLocks([folder, self.checkpoints])
        try:
            self._check_store()
            if not may_hold_a_run:
                self.check_unused()
        except BaseException:
            self._locks.close()
            raise

    def check_unused(self) -> None:
        """Raises SettingsError when a new run would find another run's checkpoints here. Raises StoreError."""
        check_unused(self.checkpoints)
        if self.store is not None:
            self.store.check_unused(self.store_url)

    def put_newest(self, lineage: Lineage, *, keep: int) -> None:
        """Bring the newest checkpoint, and the best, into a store that has nothing of the run. Raises StoreError."""
        assert self.store is not None, "asked for where there is one"
        for path in (newest_first(self.checkpoints)[0], self.checkpoints / BEST):
            if path.exists():
                self.store.put(path, lineage, best=False, milestone="", keep=keep)

    def begin_life(self, lineage: Lineage) -> None:
        """Write the lineage of this life of the server, before it serves anybody. Raises SettingsError, StoreError."""
        if self.store is not None:
            self.store.claim(lineage)
            self.remember_store()
        write_lineage(self.folder, lineage)
        with contextlib.suppress(OSError):  # of a folder above that this user may not read
            flush(self.folder.resolve().parent)

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

    def remember_store(self) -> None:
        """Write down where the checkpoints are kept too: no later life may forget that. Raises OSError."""
        if self.store is not None:
            write_whole(self.folder / STORE, f"{self.store_url}\n")

    @property
    def store_url(self) -> str:
        """The store as its flag names it: that of the whole run, also for a shard."""
        assert self.store is not None, "asked for where there is one"
        is_shard = SHARD_NAME.fullmatch(self.folder.resolve().name) is not None
        return self.store.url.rpartition("/")[0] if is_shard else self.store.url

    def _check_store(self) -> None:
        """Raises SettingsError when the run was kept in a store, and no flag names one."""
        path = self.folder / STORE
        if self.store is not None or not path.exists():
            return
        url = content_of(path).decode(errors="replace").strip()
        raise SettingsError(
            f"{self.folder}: the checkpoints of this run are kept in {url} too, where newer ones may be; resume it "
            f"with {self.resumed_from(url)}, or remove {path} to go on without it"
        )

    def resumed_from(self, url: str) -> str:
        """The command that resumes the run of this folder and the store at `url`."""
        return shlex.join(["ps-server", "--resume", str(self.folder), "--checkpoint-dir", url])

    def keep(self) -> None:
        """Hold the locks until the process ends: a thread may still be writing there."""
        self._outlives_us = True

    def close(self) -> None:
        if not self._outlives_us:
            self._locks.close()
