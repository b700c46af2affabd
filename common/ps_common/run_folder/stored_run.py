"""
A run in an object store: one folder for each life of its server, with a lineage and the checkpoints of that life.

    lives/000000017/lineage.json                       put before anything else of this life, and never replaced
    lives/000000017/checkpoint-000000012345-000000000321.safetensors, best.safetensors, episodes-000000500.safetensors

A later life stands above an earlier one, whatever T its checkpoints have: so the late upload of a server that was
replaced replaces nothing, and is not taken for the newest. In a run of shards each has lives: shard-1-of-2/lives/….
"""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from ps_common.errors import CheckpointError, DamagedCheckpoint
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import BEST, LINEAGE, NEWEST, SHARD_NAME, WRITING, newest_whole, numbers_in
from ps_common.settings.regular_file import made_folder

log = logging.getLogger("ps-rl")

_OBJECT = re.compile(r"lives/(\d{9})/([^/]+)")
_OF_FOLDER = re.compile(r"(?:([^/]+)/)?lives/\d{9}/(checkpoint-[^/]+)")


@dataclass(frozen=True, order=True)
class Stored:
    """An object of a run: the number of the life, and the name of the file."""

    life: int
    file: str

    @property
    def name(self) -> str:
        """Its name in the store."""
        return f"lives/{self.life:09d}/{self.file}"


def stored_in(store: ObjectStore) -> list[Stored]:
    """All objects of the run. Raises StoreError."""
    matches = filter(None, map(_OBJECT.fullmatch, store.names()))
    return [Stored(int(match[1]), match[2]) for match in matches]


def newest_lineage(objects: list[Stored]) -> Stored | None:
    """The lineage of the newest life."""
    return max((one for one in objects if one.file == LINEAGE), default=None)


def newest_first(objects: list[Stored], kind: str = NEWEST) -> list[Stored]:
    """The checkpoints of a kind: those of later lives first, in each the newest first."""
    found = [one for one in objects if fnmatch(one.file, kind) and (kind == BEST or numbers_in(one.file))]
    return sorted(found, key=lambda one: (one.life, numbers_in(one.file)), reverse=True)


def best_first(objects: list[Stored]) -> list[Stored]:
    """The best checkpoint, then all others, the newest first."""
    return [*newest_first(objects, BEST), *newest_first(objects)]


def fetch(store: ObjectStore, one: Stored, folder: Path) -> Path:
    """Download a checkpoint into a folder, where it appears whole and verified. Raises CheckpointError."""
    path, beside = folder / one.file, folder / WRITING / one.file
    try:
        made_folder(beside.parent)
        beside.unlink(missing_ok=True)
        store.download(one.name, beside)
        read_checkpoint(beside)
        beside.rename(path)
    except CheckpointError as error:
        raise type(error)(str(error).replace(str(beside), f"{store.url}/{one.name}")) from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error
    return path


def newest_steps_in(url: str, *, flag: str) -> dict[str, int]:
    """T of the newest checkpoint in each folder of a store; "" is that of a run without shards."""
    newest: dict[str, int] = {}
    for match in filter(None, map(_OF_FOLDER.fullmatch, ObjectStore(url, flag=flag).names())):
        if numbers := numbers_in(match[2]):
            newest[match[1] or ""] = max(numbers[0], newest.get(match[1] or "", 0))
    return newest


def newest_set_in(url: str, *, flag: str) -> list[str]:
    """
    The folders in a store whose checkpoints together hold the newest whole vector: those of all shards in order, or ""
    of a run without shards; [] when nothing is whole.
    """
    newest = newest_steps_in(url, flag=flag)
    numbers = {1} | {int(match[2]) for match in filter(None, map(SHARD_NAME.fullmatch, newest))}
    return [folder.name for folder in newest_whole(Path(), numbers, lambda folder: newest.get(folder.name, -1))]


def fetch_nearest(url: str, folder: Path, global_steps: int, *, flag: str) -> Path:
    """A shard's best verified checkpoint in a store, or one that is nearer to this T; raises as `fetch_sound`."""
    best = fetch_sound(url, folder, flag=flag)

    def nearest_first(objects: list[Stored]) -> list[Stored]:
        return sorted(newest_first(objects), key=lambda one: abs(numbers_in(one.file)[0] - global_steps))

    apart = abs(read_checkpoint(best)[1].progress.global_steps - global_steps)
    nearest = nearest_first(stored_in(ObjectStore(url, flag=flag)))[:1]
    if any(abs(numbers_in(one.file)[0] - global_steps) < apart for one in nearest):
        return fetch_sound(url, folder, flag=flag, order=nearest_first)
    return best


def fetch_sound(
    url: str, folder: Path, *, flag: str, order: Callable[[list[Stored]], list[Stored]] = best_first
) -> Path:
    """
    The first sound checkpoint, in this order, of a run or shard in a store, downloaded. Changes nothing there.

    Each damaged one before it is a warning. Raises CheckpointError, as `first_sound`, and StoreError.
    """
    store = ObjectStore(url, flag=flag)
    errors: list[str] = []
    for one in order(stored_in(store)):
        try:
            return fetch(store, one, folder)
        except DamagedCheckpoint as error:
            errors.append(str(error))
            log.warning("%s; trying the one before it", error)
    raise CheckpointError(f"{flag} {url}: contains no sound checkpoints; {'; '.join(errors) or 'there are none'}")
