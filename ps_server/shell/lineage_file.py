"""
lineage.json in a run folder: the run id, the newest epoch that was served from there, and the server that replaced it.

The file outlives checkpoints that were removed or never written. A server writes it before it serves, so that no two of
its lives share an epoch, and when it is fenced, so that it is never started again by mistake.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.lineage import Lineage
from ps_common.run_folder.paths import LINEAGE, replacement_of
from ps_common.settings.regular_file import content_of


def read_lineage(folder: Path) -> Lineage | None:
    """The lineage in a run folder; None when no server has run there. Raises SettingsError when it cannot be read."""
    path = folder / LINEAGE
    try:
        return msgspec.json.decode(content_of(path), type=Lineage)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"{path}: cannot be read: {error}; move it away to start anew, without the run's workers"
        ) from error


def write_lineage(folder: Path, lineage: Lineage) -> None:
    """Write the file atomically; it is on disk when this returns. Raises SettingsError."""
    path = folder / LINEAGE
    beside = replacement_of(path)
    try:
        with beside.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(lineage), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        beside.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise SettingsError(f"{path}: cannot be written: {error.strerror}") from error
