"""
The folders of the shards of a run, and their parts of an object store: which is that of a server, and whether its state
is the newest of the run. `ps-ctl reshard` cuts a run into another number of shards.
"""

import shlex
from pathlib import Path

from ps_common.errors import CheckpointError, SettingsError
from ps_common.protocol.lineage import WHOLE, Shard
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import SHARD_FOLDERS, SHARD_NAME, make_shard_folder, shard_folder
from ps_common.run_folder.places import Place, newest_names, newest_step, newest_steps
from ps_server.storage.run_storage import RunStorage


def folder_of_shard(given: Path, place: Shard | None) -> Path:
    """
    The folder of a server. The given one is that of its run, or its own, which a server names when it ends.

    Raises SettingsError when it is the folder of another shard.
    """
    if (match := SHARD_NAME.fullmatch(given.resolve().name)) is None:
        wanted = place or WHOLE
        folder = shard_folder(given, wanted.number, wanted.of)
        make_shard_folder(folder)
        return folder
    if place is not None and (str(place.number), str(place.of)) != match.groups():
        raise SettingsError(
            f"{given}: is the folder of shard {match[1]}/{match[2]}; for --shard {place.number}/{place.of} give "
            f"the folder of the whole run, {given.parent}"
        )
    return given


def check_no_others(folder: Path, store: str | None) -> None:
    """
    Raises SettingsError when a new run would lie next to one that has another number of shards: whoever takes the
    newest of all checkpoints there would mix them up. `folder` is the server's, `store` the URL for all of the run.
    """
    own = SHARD_NAME.fullmatch(folder.resolve().name)
    run_folder = folder.resolve().parent if own else folder
    of = int(own[2]) if own else 1
    for beside in (run_folder, *run_folder.glob(SHARD_FOLDERS)):
        if shards_named(beside.name) != of and newest_step(beside) >= 0:
            how = f"take another folder, or continue that run: --resume {shlex.quote(str(run_folder))}"
            raise SettingsError(f"{run_folder}: holds the checkpoints of a run, in {beside.name}; {how}")
    stored = newest_names(ObjectStore(store, flag="--checkpoint-dir")) if store else []
    if store and stored and shards_named(stored[0]) != of:
        raise SettingsError(f"{store}: holds a run; take another place, or --resume {shlex.quote(store)}")


def shards_named(folder: str) -> int:
    """The number of shards in the name of a folder; 1 where it is not that of a shard."""
    match = SHARD_NAME.fullmatch(folder)
    return int(match[2]) if match else 1


def check_is_newest(place: Place, storage: RunStorage) -> None:
    """
    Raises SettingsError when other shards have a newer state of the run than this server's part, in its folder or its
    store; CheckpointError when there is no state at all.
    """
    name = storage.folder.resolve().name
    own = name if SHARD_NAME.fullmatch(name) else ""
    if isinstance(place, Path) and SHARD_NAME.fullmatch(place.resolve().name):
        place = place.resolve().parent
    where = place if isinstance(place, Path) else place.url
    steps, newest = newest_steps(place), newest_names(place)
    steps[own] = max(steps.get(own, -1), newest_step(storage.folder))
    if not newest and not isinstance(place, Path) and not newest_first(storage.checkpoints):
        raise CheckpointError(f"--resume {where}: there is no run")
    if newest and steps.get(own, -1) < min(steps[folder] for folder in newest):
        theirs = f"{newest[0]} … {newest[-1]}" if newest[0] else "the run without shards"
        command = shlex.join(["ps-ctl", "reshard", str(where), "--shards", str(shards_named(own))])
        raise SettingsError(
            f"{where}: its newest state is that of {theirs}; to continue it with {shards_named(own)}: {command}"
        )
