"""A disk that is full, for one file."""

from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from ps_server.records import bounded_file


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """The file of this name takes nothing from now on."""

    def fill(name: str) -> None:
        before = bounded_file.opened_to_write

        def opened(path: Path, **how: Any) -> IO[bytes]:
            return open("/dev/full", "r+b") if path.name == name else before(path, **how)

        monkeypatch.setattr(bounded_file, "opened_to_write", opened)

    return fill
