"""
One server at a time keeps its files in a folder: the lock that a server holds for its life.

It is an flock on a file in the folder, so the kernel releases it however the holder ends. The file says who holds it.
On NFS it holds between hosts where the mount has locks (`local_lock=none`, the default).
"""

import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from common.errors import SettingsError
from common.run_folder.paths import LOCK

UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
MOST_TEXT_BYTES = 1000

log = logging.getLogger("ps-server")


class FolderLocks:
    """The locks of some folders, which exist, held until `close`."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Raises SettingsError that says who holds a folder, or that it cannot be written to."""
        self._descriptors: list[int] = []
        try:
            for folder in dict.fromkeys(folder.resolve() for folder in folders):
                self._descriptors.append(_locked(folder))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others have the folders."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def _locked(folder: Path) -> int:
    """The descriptor of the folder's lock file, which is locked as long as it is open."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise SettingsError(f"{folder}: cannot be written to: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, MOST_TEXT_BYTES, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise SettingsError(
            f"{folder}: another ps-server keeps a run there ({holder or 'which has not said who it is'}); "
            "end that one first (ps-ctl stop), or take another folder"
        ) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            os.close(descriptor)
            raise SettingsError(f"{folder}: cannot be locked: {error.strerror}") from error
        log.warning("%s: this file system has no locks; see to it that one server alone keeps its run there", folder)
    _say_who(descriptor)
    return descriptor


def _say_who(descriptor: int) -> None:
    text = f"pid {os.getpid()} on host {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    except OSError as error:  # a full disk: the lock holds all the same
        log.warning("the lock cannot say who holds it: %s", error.strerror)
