"""Every run tries the same examples: a change is judged by what it changes. `make explore` tries new ones."""

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A shell ignores SIGINT for its background jobs, and children inherit that: tests of Ctrl-C would have none.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", max_examples=30, derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("same")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium, for the tests of a module; they are skipped where there is none."""
    from benchmarks.page.chromium import CHROMIUM, chromium  # Playwright is loaded for these tests alone

    if CHROMIUM is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    with chromium() as started:
        yield started
