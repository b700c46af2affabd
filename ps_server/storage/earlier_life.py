"""
What a run folder holds of the earlier lives of its server: the newest checkpoint, and lineage.json, which has the run
id, the newest epoch that was served from there, and the server that replaced it.

The lineage outlives checkpoints that were removed or never written. A server writes it before it serves, and a standby
that is promoted before its first checkpoint, so that no two of its lives share an epoch; and when it is fenced, so that
it is never started again by mistake.
"""

import contextlib
import logging
import os
import secrets
from pathlib import Path

import msgspec
from torch import Tensor

from ps_common.errors import CheckpointError, SettingsError
from ps_common.protocol.lineage import DRAWN, Lineage
from ps_common.protocol.names import as_text
from ps_common.protocol.record import Record
from ps_common.run_folder.checkpoint_file import flush, read_checkpoint
from ps_common.run_folder.checkpoint_folder import checkpoints_of, first_sound, newest_first, why_none
from ps_common.run_folder.paths import ASIDE, LINEAGE, replacement_of
from ps_common.settings.regular_file import content_of, opened_to_write

log = logging.getLogger("ps-server")


def drawn() -> int:
    """A random number for the epoch of a next life."""
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
    beside = replacement_of(path)
    try:
        with opened_to_write(beside, anew=True) as file:
            file.write(msgspec.json.format(msgspec.json.encode(lineage), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
        flush(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise SettingsError(f"{path}: cannot be written: {error.strerror}") from error


def newest_checkpoint(
    run_folder: Path, checkpoint_folder: Path | None = None
) -> tuple[Path, dict[str, Tensor], Record]:
    """
    The newest sound checkpoint of a run. Newer ones that are damaged or unreadable are logged and moved aside, because
    the run goes on from the sound one and must never go back to them.

    Looks in `checkpoint_folder`; without it in the run folder's `checkpoints`, then in the run folder itself. Raises
    CheckpointError when there is none.
    """
    paths = newest_first(checkpoint_folder) if checkpoint_folder else checkpoints_of(run_folder)
    found = first_sound(paths, read_checkpoint, lambda error: log.warning("%s; trying the one before it", error))
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
