"""
Checkpoints in an object store, and the one writer of a run there.

A store has no lock that ends with its holder. In its place each life of a server claims its number: it puts a lineage
under that number, which succeeds once (a conditional put). A server claims its life before it reads the checkpoint that
it goes on from, and looks for later lives after each upload, before its pushes count as durable. So a checkpoint is
either seen by the next life, or durable for nobody; and a server that was replaced finds that out with its next upload.
"""

import contextlib
import logging
import shlex
from pathlib import Path

import msgspec

from ps_common.errors import CheckpointError, DamagedCheckpoint, Replaced, SettingsError, StoreError
from ps_common.protocol.lineage import Lineage
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.checkpoint_folder import first_sound, newer_than
from ps_common.run_folder.checkpoint_folder import newest_first as newest_in_folder
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import ASIDE, BEST, LINEAGE, MILESTONES, NEWEST
from ps_common.run_folder.stored_run import Stored, fetch, newest_first, newest_lineage, stored_in
from ps_server.storage.earlier_life import drawn, move_aside

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
        newest = newest_lineage(stored_in(self._store))
        return None if newest is None else self._lineage_in(newest)

    def claim(self, lineage: Lineage) -> None:
        """Begin a life of the server. Raises Replaced when this one or a later one has begun already, StoreError."""
        if self._claimed is not None and self._claimed.life == lineage.life:
            return
        self._check_not_replaced(lineage, stored_in(self._store))
        mine = Stored(lineage.life, LINEAGE)
        if not self._store.create(mine.name, msgspec.json.format(msgspec.json.encode(lineage)) + b"\n"):
            raise Replaced(self.url, self._lineage_in(mine).epoch)
        self._claimed = lineage

    def claim_next(self) -> None:
        """
        Begin the life after the newest, where there is one: a checkpoint of an earlier life is there already, or never
        durable. Other servers may do the same at the same time. Raises StoreError.
        """
        while (newest := self.lineage()) is not None:
            with contextlib.suppress(Replaced):
                self.claim(newest.resumed(draw=drawn()))
                return

    def put(self, path: Path, lineage: Lineage, *, best: bool, milestone: str, keep: int) -> str:
        """
        Upload a checkpoint of this life; returns where it is. It is durable when this returns.

        `milestone` is the name under which it is kept apart, or "". Raises Replaced, StoreError.
        """
        self.claim(lineage)  # a standby that has taken over had no life before
        stored = Stored(lineage.life, path.name)
        self._store.upload(path, stored.name)
        copies = [name for name in (BEST if best else "", milestone) if name]
        for name in copies:
            self._store.copy(stored.name, Stored(lineage.life, name).name)
        objects = stored_in(self._store)
        self._check_not_replaced(lineage, objects)
        self._remove_older(objects, keep=keep)
        return f"{self.url}/{stored.name}"

    def put_best(self, path: Path) -> None:
        """Upload the best checkpoint of the life that was claimed. Raises StoreError."""
        assert self._claimed is not None, "an older checkpoint is there"
        self._store.upload(path, Stored(self._claimed.life, BEST).name)

    def fetch_newest(self, folder: Path, *, is_ours: bool) -> None:
        """
        Bring the newest sound checkpoint into a folder, and move aside what is newer there.

        `is_ours`: nobody has served the run since this folder's server; then a checkpoint of the folder may be newer,
        and is kept. Raises CheckpointError when there is none.
        """
        objects = newest_first(stored_in(self._store))
        for one in objects:
            path = folder / one.file
            if is_ours and first_sound([*newer_than(path), path], read_checkpoint, lambda _: None):
                return
            try:
                fetch(self._store, one, folder)
            except DamagedCheckpoint as error:  # put aside, so that nobody takes it for the newest again
                self._store.copy(one.name, one.name + ASIDE)
                self._store.remove(one.name)
                log.warning("%s; it is %s now, and the one before it is tried", error, one.file + ASIDE)
                continue
            for stale in newer_than(path):
                move_aside(stale)
            return
        if not (is_ours and newest_in_folder(folder)):
            why = f"none of its {len(objects)} checkpoints is sound" if objects else "it has no checkpoints"
            raise CheckpointError(f"--resume {self.url}: {why}")

    def _check_not_replaced(self, lineage: Lineage, objects: list[Stored]) -> None:
        newest = newest_lineage(objects)
        if newest is not None and newest.life > lineage.life:
            raise Replaced(self.url, self._lineage_in(newest).epoch)

    def _lineage_in(self, one: Stored) -> Lineage:
        try:
            return msgspec.json.decode(self._store.read(one.name), type=Lineage)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{self.url}/{one.name}: cannot be read: {error}") from error

    def _remove_older(self, objects: list[Stored], *, keep: int) -> None:
        """Keep the newest of each kind. A file that cannot be removed is tried again after the next checkpoint."""
        for kind, most in ((NEWEST, keep), (MILESTONES, keep), (BEST, 1)):
            for old in newest_first(objects, kind)[most:]:
                try:
                    self._store.remove(old.name)
                except StoreError as error:
                    log.warning("cannot be removed: %s", error)
