"""
The folder of authorised keys, read when it has changed: a handshake or an admin's message costs the same with ten files
and with a thousand.

A file that is added, removed or renamed changes the time of its folder, and counts at once. A file that is written to
in place counts within LOOK_SECONDS, and so does every change on a file system with times of its own.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ps_common.errors import SettingsError
from ps_common.sockets.curve import ADMINS, read_public

LOOK_SECONDS = 1.0  # between two looks at every file
# Two changes of so little time may have the same time in a file system: what has just changed is read again.
TICK_NANOSECONDS = 50_000_000

Stamp = tuple[int, int, int]


class _Look(NamedTuple):
    """What the folders held, and until when they need not be read again unless their stamps change."""

    stamps: tuple[Stamp | None, ...]
    until: float
    rights: Mapping[str, bool]


class AuthorizedKeys:
    """The keys that may connect. Any thread may ask."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        """
        `warn` gets a sentence on each file that holds no key, at every look.

        Raises SettingsError when there is no such folder, or a file in it is no key.
        """
        if not folder.is_dir():
            raise SettingsError(f"--authorized-keys {folder}: there is no such folder; ps-ctl keygen makes one")
        self._folders = (folder, folder / ADMINS)
        self._warn = warn
        self._parsed: dict[Path, tuple[Stamp, str]] = {}
        try:
            for path in self._files():
                self._read(path)
        except OSError as error:
            raise SettingsError(f"--authorized-keys {folder}: cannot be read: {error.strerror}") from error
        self._newest = _Look((), 0.0, {})
        self._lock = threading.Lock()  # an older look must not replace a newer one
        self.rights()

    @property
    def newest(self) -> Mapping[str, bool]:
        """The same as they were at the newest look; touches no file."""
        return self._newest.rights

    def rights(self) -> Mapping[str, bool]:
        """
        The keys that may connect, as the User-Id of a message names them, and whether each is an admin's.

        Raises OSError when the folder cannot be read.
        """
        # Before the files are read: what changes meanwhile changes the stamps that the next look compares.
        folder, admins = self._folders
        with self._lock:
            stamps = _stamp(folder), _stamp(admins) if admins.exists() else None
            if stamps != self._newest.stamps or time.monotonic() >= self._newest.until:
                self._newest = self._look(stamps)
            return self._newest.rights

    def _look(self, stamps: tuple[Stamp | None, ...]) -> _Look:
        rights: dict[str, bool] = {}
        parsed: dict[Path, tuple[Stamp, str]] = {}
        for path in self._files():  # those of admins come last
            known = self._parsed.get(path)
            try:
                stamp = _stamp(path)
                key = known[1] if known is not None and known[0] == stamp else self._read(path)
            except FileNotFoundError:
                continue  # it was removed meanwhile
            except SettingsError as error:
                self._warn(str(error))
                continue
            rights[key] = path.parent.name == ADMINS
            if not _is_recent(stamp):
                parsed[path] = stamp, key
        self._parsed = parsed
        is_settled = not any(stamp is not None and _is_recent(stamp) for stamp in stamps)
        return _Look(stamps, time.monotonic() + (LOOK_SECONDS if is_settled else 0.0), rights)

    def _read(self, path: Path) -> str:
        return read_public("--authorized-keys", path).decode()

    def _files(self) -> list[Path]:
        there = [folder for folder in self._folders if folder.exists()]
        return [path for folder in there for path in sorted(folder.iterdir()) if path.suffix == ".key"]


def _stamp(path: Path) -> Stamp:
    """What changes when a file or a folder changes."""
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


def _is_recent(stamp: Stamp) -> bool:
    return 0 <= time.time_ns() - stamp[0] < TICK_NANOSECONDS
