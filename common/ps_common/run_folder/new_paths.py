"""What a command makes before it knows whether it can begin: a command that is refused leaves none of it behind."""

import contextlib
from pathlib import Path
from types import TracebackType

from ps_common.errors import Fenced


class NewPaths:
    """
    Files and folders that are not there yet; an error inside this block removes those that were made.

    A folder with anything else in it stays, and so does everything when the server was fenced: its folder says so.
    """

    def __init__(self) -> None:
        self._paths: set[Path] = set()

    def expect(self, *paths: Path) -> None:
        """These may be made from now on, with the folders above them. Those that are there already stay."""
        self._paths.update(one for path in paths for one in (path, *path.parents) if not one.exists())

    def made(self, *paths: Path) -> None:
        """These are new."""
        self._paths.update(paths)

    def keep(self) -> None:
        """The command has begun."""
        self._paths.clear()

    def __enter__(self) -> "NewPaths":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None or isinstance(error, Fenced):
            return
        for path in sorted(self._paths, key=lambda one: len(one.parts), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
