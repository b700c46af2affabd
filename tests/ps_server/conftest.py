"""A seeded server, watched while it is talked to."""

from collections.abc import Iterator

import pytest

from tests.ps_server.transcripts import Transcript


@pytest.fixture
def server() -> Iterator[Transcript]:
    """A run with workers "a" and "b" and all weights 0."""
    server = Transcript.seeded(workers=("a", "b"))
    yield server
    server.check()


@pytest.fixture
def empty() -> Iterator[Transcript]:
    """A server that nobody has talked to."""
    server = Transcript()
    yield server
    server.check()
