from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import Programs, programs_in


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs; every one of them is gone after the test."""
    with programs_in(tmp_path) as started:
        yield started
