"""
The folders of the shards of a run, and their parts of an object store: which is that of a server, and how many there
are.
"""

import shlex
from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.protocol.lineage import WHOLE, Shard
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import SHARD_NAME, make_shard_folder, shard_folder
from ps_common.run_folder.places import Place, newest_steps


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


def check_number(folder: Path, store: str | None) -> None:
    """
    Raises SettingsError when the run of a server has another number of shards: a run keeps that number. `folder` and
    the URL `store` are the server's own. Raises StoreError.
    """
    own = folder.resolve()
    is_shard, of = SHARD_NAME.fullmatch(own.name) is not None, shards_named(own.name)
    run = own.parent if is_shard else folder
    places: list[tuple[str, Place]] = [(str(run), run)]
    if store:
        url = store.rpartition("/")[0] if is_shard else store
        places.append((url, ObjectStore(url, flag="--checkpoint-dir")))
    for where, place in places:
        kept = {shards_named(name) for name, step in newest_steps(place).items() if step >= 0} - {of}
        if kept:
            place_of_it = shlex.quote(where)
            raise SettingsError(
                f"{where}: holds a run with --shards {max(kept)}, which keeps that number: continue it with as many "
                f"(--resume {place_of_it}), or begin another with its weights elsewhere (--start-from {place_of_it})"
            )


def shards_named(folder: str) -> int:
    """The number of shards in the name of a folder; 1 where it is not that of a shard."""
    match = SHARD_NAME.fullmatch(folder)
    return int(match[2]) if match else 1
