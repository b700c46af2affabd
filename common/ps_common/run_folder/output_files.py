"""
Files that the flags of a command name: they are checked before the work begins, and written when it is done.

Such a file may lie in the folder of a run that came from elsewhere, with a link in its place: nothing is written to
what that leads to.
"""

import os
from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.run_folder.paths import write_whole
from ps_common.settings.regular_file import opened_to_write


def check_output(flag: str, path: Path | None, *, suffix: str = "") -> None:
    """
    Make the folder of the file, and check that the file can be written and ends in `suffix`. None needs no check.

    Raises SettingsError.
    """
    if path is None:
        return
    if suffix and path.suffix.lower() != suffix:
        example = path.with_suffix(suffix) if path.suffix else path / f"game{suffix}"
        raise SettingsError(f"{flag} {path}: must name a file that ends in {suffix}, for example {example}")
    if _is_stream(path):  # opening it may block
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        opened_to_write(path).close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise SettingsError(f"{flag} {path}: cannot be written: {error.strerror}") from error


def write_output(flag: str, path: Path, content: bytes) -> None:
    """
    Write the file that a flag names, in the place of a link too; a device or a pipe takes the bytes.

    Raises SettingsError.
    """
    try:
        if not _is_stream(path):
            write_whole(path, content)
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)  # fails where nobody reads
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise SettingsError(f"{flag} {path}: cannot be written: {error.strerror or error}") from error


def _is_stream(path: Path) -> bool:
    """Whether the path is one of the system's, as /dev/stdout is, or that of a pipe."""
    return path.is_relative_to("/dev") or path.is_fifo() or path.is_char_device()
