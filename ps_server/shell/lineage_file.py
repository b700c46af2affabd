"""
lineage.json in a run folder: which run lives there, the newest epoch in which it was served from there, and whether
another server has taken the run over.

The file outlives checkpoints that were removed or never written. A server writes it before it serves, so that no two of
its lives have the same epoch, and when it learns that it was replaced, so that it is never started again by mistake.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from common.errors import SettingsError
from common.run_folder.paths import LINEAGE, replacement_of
from ps_server.state.lineage import Lineage


def read_lineage(folder: Path) -> Lineage | None:
    """What a run folder remembers; None when no server has run there. Raises SettingsError when it cannot be read."""
    path = folder / LINEAGE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Lineage)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(
            f"{path}: cannot be read: {error}; move it away, and workers will not know the run"
        ) from error


def write_lineage(folder: Path, lineage: Lineage) -> None:
    """Whole or not at all, and on the disk when this returns. Raises SettingsError."""
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
