"""
Files that somebody else may have put there: only regular ones are opened, and the bytes that are read have a bound.
Nothing is written through a link: in the folder of a run that came from elsewhere, a link may lead to any file of the
user.

A FIFO would block for ever, and a link to /dev/zero has no end. Errors are OSErrors: `strerror` is the reason in words.
"""

import contextlib
import errno
import os
import stat
import tomllib
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Any

MOST_BYTES = 2**24  # of a run folder's small files
MOST_TOML_BYTES = 2**18  # read at about a megabyte a second
UNHURT = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # flags with which nothing waits, and no link is followed
NOT_REGULAR = {errno.EISDIR, errno.EINVAL, errno.EFBIG, errno.ELOOP}  # the path is not a regular file
MOST_FILE_BYTES = 5 * 2**30  # of a checkpoint: weights, target and two slots of the largest schema, and the record


def opened(path: Path, *, most_bytes: int | None = None) -> BufferedReader:
    """The file, to be read; of any size without `most_bytes`. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor), path, most_bytes)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def opened_to_write(path: Path, *, replaces: bool = False, mode: int = 0o666) -> BufferedRandom:
    """The file, made with this mode if it is missing, to be appended to; `replaces`: in place of one that is there."""
    if replaces:
        path.unlink(missing_ok=True)
    flags = os.O_EXCL if replaces else os.O_APPEND
    try:
        descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | UNHURT, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _is_a_link(path) from error
        raise
    try:
        _check(os.fstat(descriptor), path, None)
        return os.fdopen(descriptor, "w+b" if replaces else "a+b")
    except BaseException:
        os.close(descriptor)
        raise


def flush(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def made_folder(path: Path) -> Path:
    """The folder, made if it is missing, and never the one that a link leads to. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        path.mkdir()
    if path.is_symlink():
        raise _is_a_link(path)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return path


def made_empty(path: Path) -> int:
    """
    Put an empty file in place of one that is there, for a library that writes it. Returns the mode that the user's
    umask gives to it: the library may give another one. Raises OSError.
    """
    with opened_to_write(path, replaces=True) as file:
        return stat.S_IMODE(os.fstat(file.fileno()).st_mode)


def content_of(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The whole file. Raises OSError."""
    with opened(path, most_bytes=most_bytes) as file:
        return file.read(most_bytes)  # files of /proc have more bytes than their size


def toml_in(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises OSError, or ValueError when it is not TOML."""
    try:
        return tomllib.loads(content_of(path, most_bytes=MOST_TOML_BYTES).decode("utf-8-sig"))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def check_regular(path: Path, *, most_bytes: int | None = None) -> None:
    """For files that a library opens. Raises OSError."""
    _check(path.stat(), path, most_bytes)


def _is_a_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, "is a link, to which nothing is written", str(path))


def _check(status: os.stat_result, path: Path, most_bytes: int | None) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    if most_bytes is not None and status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"has more than {most_bytes} bytes", str(path))
