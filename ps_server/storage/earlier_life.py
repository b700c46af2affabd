"""
What a run folder holds of the earlier lives of its server: the newest checkpoint, and lineage.json, which has the run
id, the newest epoch that was served from there, and the server that replaced it.

The lineage outlives checkpoints that were removed or never written. A server writes it before it serves, and a standby
that is promoted before its first checkpoint, so that no two of its lives share an epoch; and when it is fenced, so that
it is never started again by mistake.
"""

import logging
import secrets
from pathlib import Path

import msgspec
from torch import Tensor

from ps_common.errors import CheckpointError, SettingsError
from ps_common.protocol.lineage import DRAWN, RUN_ID_DIGITS, Lineage, Shard
from ps_common.protocol.names import as_text
from ps_common.protocol.record import Record
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.checkpoint_folder import checkpoints_of, first_verified, newest_first, why_none
from ps_common.run_folder.paths import ASIDE, EVENTS, LINEAGE, METRICS, write_whole
from ps_common.run_folder.run_rows import EventRow, rows_in
from ps_common.settings.regular_file import content_of

SECRET_BYTES = 16

log = logging.getLogger("ps-server")


def drawn() -> int:
    return secrets.randbelow(DRAWN)


def read_lineage(folder: Path) -> Lineage | None:
    """The lineage in a run folder; None when no server has run there. Raises SettingsError when it cannot be read."""
    path = folder / LINEAGE
    try:
        return msgspec.json.decode(content_of(path), type=Lineage)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = as_text(str(error.strerror if isinstance(error, OSError) else error))
        raise SettingsError(
            f"{path}: cannot be read: {why}; move it away to start anew, without the run's workers"
        ) from error


def write_lineage(folder: Path, lineage: Lineage) -> None:
    """Write the file atomically; it is on disk when this returns. Raises SettingsError."""
    path = folder / LINEAGE
    try:
        write_whole(path, msgspec.json.format(msgspec.json.encode(lineage), indent=2) + b"\n")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be written: {error.strerror}") from error


def new_lineage(folder: Path, *, shard: Shard) -> Lineage:
    """The lineage of a new run; of the run of this folder if its server ended before it had saved anything."""
    before = read_lineage(folder)
    if before is not None and before.shard == shard and before.replaced_by is None:
        if not _has_saved(folder):
            return before.resumed(draw=drawn())
        gone = "the checkpoints of run %s are gone: a new run begins, for which its workers have to be started anew"
        log.warning(gone, before.run_id)
    return begun_lineage(shard)


def begun_lineage(shard: Shard) -> Lineage:
    """The first lineage of a new run."""
    run_id, secret = secrets.token_hex(RUN_ID_DIGITS // 2), secrets.token_hex(SECRET_BYTES)
    return Lineage.begun(run_id, secret=secret, draw=drawn(), shard=shard)


def _has_saved(folder: Path) -> bool:
    """Whether the server of this folder had saved a checkpoint; True where nobody knows."""
    try:
        return any(one.kind == "checkpoint" for one in rows_in(folder / EVENTS, EventRow))
    except FileNotFoundError:
        return (folder / METRICS).exists()
    except OSError:
        return True


def newest_checkpoint(
    run_folder: Path, checkpoint_folder: Path | None = None
) -> tuple[Path, dict[str, Tensor], Record]:
    """
    The newest verified checkpoint of a run. Newer ones that are damaged are logged and moved aside, because the run
    continues from that one and must never go back to them.

    Looks in `checkpoint_folder`; without it in the run folder's `checkpoints`, then in the run folder itself. Raises
    CheckpointError when there is none, or when the disk cannot read one that may be undamaged.
    """
    paths = newest_first(checkpoint_folder) if checkpoint_folder else checkpoints_of(run_folder)
    found = first_verified(paths, read_checkpoint, lambda _, error: log.warning("%s; trying the one before it", error))
    if found is None:
        place = checkpoint_folder or run_folder
        raise CheckpointError(f"{place}: {why_none(place, run_folder)}")
    path, (vectors, record) = found
    for newer in paths[: paths.index(path)]:
        move_aside(newer)
    return path, vectors, record


def move_aside(path: Path) -> None:
    aside = path.with_name(path.name + ASIDE)
    try:
        path.rename(aside)
    except OSError as error:
        log.warning("%s: cannot be moved aside: %s", path, error.strerror)
    else:
        log.warning("%s: moved aside, to %s", path, aside.name)


def check_unused(folder: Path) -> None:
    """Raises SettingsError when the folder holds a run: those of a new run, with fewer steps, would be removed."""
    if newest_first(folder):
        raise SettingsError(f"{folder}: holds the checkpoints of a run; take another folder, or --resume that run")
