"""
A folder in an object store: whole objects are put, read, listed and removed, by names below one URL.

Any URL that fsspec knows (s3://bucket/folder, gs://…). It knows nothing of what the objects hold. Nothing is cached: a
listing is what the store holds now. Any exception of a store's client becomes a StoreError with its reason.
"""

import errno
import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ps_common.errors import SettingsError, StoreError

PROTOCOL_END = "://"
EXTRAS = dict.fromkeys(("s3", "s3a"), "pip install -c constraints.txt '.[s3]'")
MISTYPED = re.compile(r"(s3a?|gs|gcs|az|abfss?|adl|hdfs|https?|s?ftp|memory|file|local):")
CONDITION_FAILED = {errno.EEXIST, errno.EINVAL}  # an object has this name already


def is_url(place: str) -> bool:
    """Whether a flag names an object store, and not a folder."""
    return PROTOCOL_END in place


def check_folder(flag: str, place: str | Path | None) -> None:
    """Raises SettingsError for a folder that is a mistyped URL, as s3:/bucket, or a URL where a folder is wanted."""
    if place is None or (isinstance(place, str) and is_url(place)):
        return
    if match := MISTYPED.match(str(place)):
        meant = f"{match[1]}{PROTOCOL_END}{str(place)[match.end() :].lstrip('/')}"
        raise SettingsError(f"{flag} {place}: is not a folder; an object store is {meant}, for a flag that takes one")


class ObjectStore:
    """The objects below a URL. A call may block for seconds to a minute, the patience of the store's client."""

    def __init__(self, url: str, *, flag: str) -> None:
        """`flag` named the URL. Raises SettingsError when the client of such stores is not installed."""
        self.url, self._flag = url.rstrip("/"), flag
        scheme = url.partition(PROTOCOL_END)[0]
        if scheme in ("file", "local"):
            raise SettingsError(f"{flag} {url}: is a folder of this machine; give its path, without {scheme}://")
        try:
            fsspec = importlib.import_module("fsspec.core")
            self._files: Any
            self._files, self._root = fsspec.url_to_fs(self.url, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            raise SettingsError(f"{flag} {url}: {error}; {EXTRAS.get(scheme, 'install that package')}") from error
        except Exception as error:  # an unknown scheme, or what a client thinks of the rest
            raise SettingsError(f"{flag} {url}: cannot be used: {_reason(error)}") from error
        self._root = self._root.rstrip("/")

    def below(self, folder: str) -> "ObjectStore":
        """A folder of this one."""
        return ObjectStore(f"{self.url}/{folder}", flag=self._flag)

    def names(self) -> list[str]:
        """The names of all objects, relative to the URL. Raises StoreError."""
        with self._errors_of(""):
            self._files.invalidate_cache()
            try:
                found = self._files.find(self._root)
            except FileNotFoundError:  # of a bucket that is not there; a folder begins with its first object
                if self._root.count("/") == 0:
                    raise
                found = []
            return sorted(path.removeprefix(self._root).lstrip("/") for path in found)

    def create(self, name: str, content: bytes) -> bool:
        """
        Put a small object unless the name is taken. Returns whether it holds this content now.

        Of several callers at once one succeeds, if the store has conditional puts (S3 does). Raises StoreError.
        """
        with self._errors_of(name):
            try:
                self._files.pipe_file(self._path(name), content, mode="create")
            except OSError as error:
                if not isinstance(error, FileExistsError) and error.errno not in CONDITION_FAILED:
                    raise
                # An earlier attempt of this call may have succeeded, and its reply been lost.
                return bytes(self._files.cat_file(self._path(name))) == content
            return True

    def read(self, name: str) -> bytes:
        """The content of a small object. Raises StoreError."""
        with self._errors_of(name):
            return bytes(self._files.cat_file(self._path(name)))

    def upload(self, path: Path, name: str) -> None:
        """Put a file; when this returns, the store holds the whole of it. Raises StoreError."""
        with self._errors_of(name):
            self._files.put_file(str(path), self._path(name))

    def download(self, name: str, path: Path) -> None:
        """Write an object into a file. Raises StoreError."""
        with self._errors_of(name):
            self._files.get_file(self._path(name), str(path))

    def copy(self, name: str, to: str) -> None:
        """Copy an object inside the store, over another if need be. Raises StoreError."""
        with self._errors_of(to):
            self._files.cp_file(self._path(name), self._path(to))

    def remove(self, name: str) -> None:
        """Remove an object; one that is gone already is not an error. Raises StoreError."""
        with self._errors_of(name), suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _errors_of(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each client raises errors of its own library
            raise StoreError(f"{self.url}/{name}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
