"""The page of a run: `ps-web` as a child process of the program that trains."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import SettingsError
from common.program.child_processes import Child
from common.run_folder.paths import PAGE, WEB_LOG

POLL_SECONDS = 0.05
LEAVE_SECONDS = 5.0


class WebPage:
    """Shows one run folder on the loopback interface. A page that fails ends no run."""

    def __init__(self, folder: Path, *, port: int, flags: tuple[str, ...] = ()) -> None:
        """`port` 0 takes a free one; `flags` are further ones of ps-web. Raises SettingsError."""
        self._file = folder / PAGE
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            raise SettingsError(f"{self._file}: cannot be written: {error.strerror}") from error
        arguments = [str(folder), "--wait", "--port", str(port), "--address-file", str(self._file), *flags]
        self._child = Child("ps_web", arguments, folder / WEB_LOG)

    def first_line(self, *, within_seconds: float) -> str:
        """The address with its token, or where it will be; why there is no page, if it has failed."""
        deadline = time.monotonic() + within_seconds
        while not self._file.exists():
            if self._child.exit_status is not None:
                return f"there is no page: {self._child.last_line() or self._child.cause_of_death()}"
            if time.monotonic() > deadline:
                return f"page: its address will be in {self._file}"
            self._child.wait(within_seconds=POLL_SECONDS)
        return "page: " + self._file.read_text(encoding="utf-8")

    def end(self) -> None:
        """Send SIGTERM, and SIGKILL if it has not left soon."""
        self._child.end(within_seconds=LEAVE_SECONDS)


@contextmanager
def web_page(folder: Path, *, port: int | None, secret_key: Path | None = None) -> Iterator[WebPage | None]:
    """The page while the block runs; None without a `port`. `secret_key` is that of a locked server."""
    keys = () if secret_key is None else ("--curve-server-key", str(secret_key), "--curve-secret", str(secret_key))
    page = None if port is None else WebPage(folder, port=port, flags=keys)
    try:
        yield page
    finally:
        if page is not None:
            page.end()
