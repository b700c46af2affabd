"""
The lock of a folder, by which one server at a time keeps its files there.

It is an flock on a file in the folder, so the kernel releases it however the holder ends. The file names the holder. On
NFS the lock works between hosts if the mount has locks (`local_lock=none`, the default).
"""

import contextlib
import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.run_folder.paths import LOCK
from ps_common.settings.regular_file import UNHURT

UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
MOST_TEXT_BYTES = 1000
LOOKS, LOOK_SECONDS = 5, 0.02  # before a lock is another holder's

log = logging.getLogger("ps-server")


class FolderLocks:
    """The locks of some existing folders, held until `close`."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Raises SettingsError that names the holder of a folder, or one that cannot be written to."""
        self._descriptors: list[int] = []
        try:
            for folder in dict.fromkeys(folder.resolve() for folder in folders):
                self._descriptors.append(_locked(folder))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folders."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def is_locked(folder: Path) -> bool:
    """Whether a server keeps a run in this folder, which may be read only; False where a file system has no locks."""
    with contextlib.suppress(OSError):  # without a lock file no server was there
        descriptor = os.open(folder / LOCK, os.O_RDONLY | UNHURT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def _locked(folder: Path) -> int:
    """The descriptor of the folder's lock file, which is locked as long as it is open."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | UNHURT, 0o644)
    except OSError as error:
        raise SettingsError(f"{folder}: cannot be written to: {error.strerror}") from error
    try:
        _lock(descriptor)
    except BlockingIOError:
        holder = os.pread(descriptor, MOST_TEXT_BYTES, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise SettingsError(
            f"{folder}: another ps-server keeps a run there ({holder or 'its file does not name it'}); "
            "end that one first (ps-ctl stop), or take another folder"
        ) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            os.close(descriptor)
            raise SettingsError(f"{folder}: cannot be locked: {error.strerror}") from error
        log.warning("%s: this file system has no locks; make sure that no other server keeps a run there", folder)
    _name_holder(descriptor)
    return descriptor


def _lock(descriptor: int) -> None:
    """Lock the file. Whoever looks whether it is locked has the lock for a moment, and is not taken for a holder."""
    for _ in range(LOOKS):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(LOOK_SECONDS)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _name_holder(descriptor: int) -> None:
    text = f"pid {os.getpid()} on host {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError as error:  # a full disk; the lock works all the same
        log.warning("the lock file cannot name this server: %s", error.strerror)
