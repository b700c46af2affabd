"""
A run in an object store: one folder for each life of its server, with a lineage and the checkpoints of that life.

    lives/000000017/lineage.json                       put before anything else of this life, and never replaced
    lives/000000017/checkpoint-000000012345-000000000321.safetensors, best.safetensors, episodes-000000500.safetensors

A later life stands above an earlier one, whatever T its checkpoints have: so the late upload of a server that was
replaced replaces nothing, and is not taken for the newest. In a run of shards each has lives: shard-1-of-2/lives/….

A store has no lock that ends with its holder. In its place each life of a server claims its number: it puts a lineage
under that number, which succeeds once (a conditional put).
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from ps_common.errors import CheckpointError, Replaced, StoreError
from ps_common.protocol.lineage import Lineage
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import BEST, LINEAGE, NEWEST, WRITING, numbers_in
from ps_common.settings.regular_file import made_folder

_OBJECT = re.compile(r"lives/(\d{9})/([^/]+)")
_OF_FOLDER = re.compile(r"(?:([^/]+)/)?lives/\d{9}/(checkpoint-[^/]+)")


@dataclass(frozen=True, order=True)
class Stored:
    """An object of a run, with the number of its life, and the name of its file."""

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


def lineage_in(store: ObjectStore, objects: list[Stored] | None = None) -> Lineage | None:
    """The lineage of the newest life; None in an empty store. `objects`: of the run, if known. Raises StoreError."""
    newest = max((one for one in objects or stored_in(store) if one.file == LINEAGE), default=None)
    if newest is None:
        return None
    try:
        return msgspec.json.decode(store.read(newest.name), type=Lineage)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{store.url}/{newest.name}: cannot be read: {error}") from error


def claim(store: ObjectStore, lineage: Lineage) -> None:
    """Begin a life of a server. Raises Replaced when this one or a later one has begun already, StoreError."""
    check_not_replaced(store, lineage, stored_in(store))
    if not store.create(Stored(lineage.life, LINEAGE).name, msgspec.json.format(msgspec.json.encode(lineage)) + b"\n"):
        newest = lineage_in(store)
        raise Replaced(store.url, newest.epoch if newest is not None else lineage.epoch)


def check_not_replaced(store: ObjectStore, lineage: Lineage, objects: list[Stored]) -> None:
    """Raises Replaced when a later life has begun, StoreError."""
    newest = lineage_in(store, objects)
    if newest is not None and newest.life > lineage.life:
        raise Replaced(store.url, newest.epoch)


def newest_first(objects: list[Stored], kind: str = NEWEST) -> list[Stored]:
    """The checkpoints of a kind, those of later lives first, and in each life the newest first."""
    found = [one for one in objects if fnmatch(one.file, kind) and (kind == BEST or numbers_in(one.file))]
    return sorted(found, key=lambda one: (one.life, numbers_in(one.file)), reverse=True)


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


def steps_in(store: ObjectStore) -> dict[str, int]:
    """T of the newest checkpoint of a run, under "", and of each of its shards, under the name of its folder."""
    newest: dict[str, int] = {}
    for match in filter(None, map(_OF_FOLDER.fullmatch, store.names())):
        if numbers := numbers_in(match[2]):
            newest[match[1] or ""] = max(numbers[0], newest.get(match[1] or "", 0))
    return newest
