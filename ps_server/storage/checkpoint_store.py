"""
Checkpoints in an object store, and the one writer of a run there.

Each life of a server claims its number, once (stored_run.py). A server claims its life before it reads the checkpoint
that it continues, and looks for later lives after each upload, before its pushes count as durable. So a checkpoint
is either seen by the next life, or durable for nobody; and a server that was replaced finds that out with its next
upload.
"""

import logging
import shlex
from pathlib import Path

from ps_common.errors import CheckpointError, SettingsError, StoreError
from ps_common.protocol.lineage import Lineage
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.checkpoint_folder import first_verified, newer_than
from ps_common.run_folder.checkpoint_folder import newest_first as newest_in_folder
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import ASIDE, BEST, MILESTONES, NEWEST
from ps_common.run_folder.stored_run import (
    Stored,
    check_not_replaced,
    claim,
    fetch,
    lineage_in,
    newest_first,
    stored_in,
)
from ps_server.storage.earlier_life import move_aside

log = logging.getLogger("ps-server")


class CheckpointStore:
    """The run in one object store. Its methods block: a server that starts calls them, and the writer's thread."""

    def __init__(self, url: str, *, flag: str) -> None:
        """Raises SettingsError when such stores cannot be used here."""
        self.url = url
        self._store = ObjectStore(url, flag=flag)
        self._claimed: Lineage | None = None

    def check_unused(self, run: str) -> None:
        """Raises SettingsError when the store holds a run; `run` is the URL of the whole, also for a shard."""
        if stored_in(self._store):
            raise SettingsError(f"{self.url}: holds a run; take another place, or --resume {shlex.quote(run)}")

    def lineage(self) -> Lineage | None:
        """That of the newest life; None in an empty store. Raises StoreError."""
        return lineage_in(self._store)

    def claim(self, lineage: Lineage) -> None:
        """Begin a life of the server. Raises Replaced when this one or a later one has begun already, StoreError."""
        if self._claimed is None or self._claimed.life != lineage.life:
            claim(self._store, lineage)
            self._claimed = lineage

    def put(self, path: Path, lineage: Lineage, *, best: bool, milestone: str, keep: int) -> str:
        """
        Upload a checkpoint of this life; returns where it is. It is durable when this returns.

        `milestone` is the name under which it is kept apart, or "". Raises Replaced, StoreError.
        """
        self.claim(lineage)  # a standby that was promoted had no life before
        stored = Stored(lineage.life, path.name)
        self._store.upload(path, stored.name)
        copies = [name for name in (BEST if best else "", milestone) if name]
        for name in copies:
            self._store.copy(stored.name, Stored(lineage.life, name).name)
        objects = stored_in(self._store)
        check_not_replaced(self._store, lineage, objects)
        self._remove_older(objects, keep=keep)
        return f"{self.url}/{stored.name}"

    def put_best(self, path: Path) -> None:
        """Upload the best checkpoint of the life that was claimed. Raises StoreError."""
        assert self._claimed is not None, "an older checkpoint is there"
        self._store.upload(path, Stored(self._claimed.life, BEST).name)

    def fetch_newest(self, folder: Path, *, is_ours: bool) -> None:
        """
        Bring the newest verified checkpoint into a folder, and move aside what is newer there.

        `is_ours`: nobody has served the run since this folder's server; then a checkpoint of the folder may be newer,
        and is kept. Raises CheckpointError when there is none.
        """

        def fetched(one: Stored) -> Path | None:
            """None: this one, or a newer one, is in the folder."""
            path = folder / one.file
            if is_ours and first_verified([*newer_than(path), path], read_checkpoint, lambda *_: None):
                return None
            return fetch(self._store, one, folder)

        objects = newest_first(stored_in(self._store))
        found = first_verified(objects, fetched, self._put_aside)
        if found is not None and (path := found[1]) is not None:
            for stale in newer_than(path):
                move_aside(stale)
        if found is None and not (is_ours and newest_in_folder(folder)):
            why = f"none of its {len(objects)} checkpoints can be read" if objects else "it has no checkpoints"
            raise CheckpointError(f"--resume {self.url}: {why}")

    def _put_aside(self, damaged: Stored, error: CheckpointError) -> None:
        """Nobody is to take it for the newest again."""
        self._store.copy(damaged.name, damaged.name + ASIDE)
        self._store.remove(damaged.name)
        log.warning("%s; it is %s now, and the one before it is tried", error, damaged.file + ASIDE)

    def _remove_older(self, objects: list[Stored], *, keep: int) -> None:
        """Keep the newest of each kind. A file that cannot be removed is tried again after the next checkpoint."""
        for kind, most in ((NEWEST, keep), (MILESTONES, keep), (BEST, 1)):
            for old in newest_first(objects, kind)[most:]:
                try:
                    self._store.remove(old.name)
                except StoreError as error:
                    log.warning("cannot be removed: %s", error)
