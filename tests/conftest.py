"""Every run tries the same examples: a change is judged by what it changes. `make explore` tries new ones."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# A shell ignores SIGINT for its background jobs, and children inherit that: tests of Ctrl-C would have none.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# As in a worker: threads of torch that wait for each other take the time of the tests beside them.
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

STARTS_PROGRAMS = {"integration", "examples", "documents", "on_ray", "ps_track", "zoo"}  # folders of tests

settings.register_profile("same", max_examples=30, derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("same")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Each process of pytest-xdist begins with its share of the files that start programs, and ends with quick tests.

    It is given a run of consecutive tests, and takes over the last ones of others when it is done. Without this order
    one process would still have minutes of work when the others have none.
    """
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    files = list(dict.fromkeys(item.path for item in items if STARTS_PROGRAMS & set(item.path.parts)))
    share = {path: number % processes for number, path in enumerate(files)}
    slow: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for item in items:
        if item.path in share:
            slow[share[item.path]].append(item)
    quick = [item for item in items if item.path not in share]
    length = -(-len(items) // processes)
    ordered: list[pytest.Item] = []
    for mine in slow:
        few = max(0, length - len(mine))
        ordered += mine + quick[:few]
        quick = quick[few:]
    items[:] = ordered + quick


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium, for the tests of a module; they are skipped where there is none."""
    from tests.chromium import CHROMIUM, chromium  # Playwright is loaded for these tests alone

    if CHROMIUM is None:
        pytest.skip("there is no chromium here: apt-get install chromium")
    with chromium() as started:
        yield started


@pytest.fixture(autouse=True)
def _denormal_numbers_are_back() -> Iterator[None]:
    """A program's function that a test calls has this thread flush denormal numbers; later tests need them."""
    yield
    if sys.float_info.min / 2 == 0:
        sys.modules["torch"].set_flush_denormal(False)
    assert sys.float_info.min / 2 > 0


@pytest.fixture(autouse=True)
def _no_client_is_left() -> Iterator[None]:
    """A client that a test leaves in this process has threads and segments, which later tests would count."""
    yield
    assert "zmq-client" not in [thread.name for thread in threading.enumerate()]
