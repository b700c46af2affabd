"""Work that may block for ever is done in the background, within a bound."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from ps_common.program.output import WriterThread

PATIENCE_SECONDS = 20.0

STUCK = """
import threading
from ps_common.program.output import WriterThread

writer = WriterThread("stuck", most=1)
begun = threading.Event()
writer.do(lambda: (begun.set(), threading.Event().wait()))
begun.wait()
print(writer.close(within_seconds=0.01))
"""


@pytest.fixture
def goes_on() -> Iterator[threading.Event]:
    """The event that a stuck piece of work waits for."""
    event = threading.Event()
    yield event
    event.set()


def stuck_writer(goes_on: threading.Event, *, most: int) -> WriterThread:
    """One that is in the midst of work of size 0."""
    writer, begun = WriterThread("test", most=most), threading.Event()
    writer.do(lambda: (begun.set(), goes_on.wait(PATIENCE_SECONDS))[1] and None, size=0)
    assert begun.wait(PATIENCE_SECONDS)
    return writer


def test_work_beyond_the_bound_is_dropped_and_counted(goes_on: threading.Event) -> None:
    writer, done = stuck_writer(goes_on, most=10), list[str]()
    taken = [writer.do(partial(done.append, name), size=size) for name, size in (("a", 6), ("b", 5), ("c", 4))]
    assert taken == [True, False, True]
    assert writer.dropped == 1
    goes_on.set()
    assert writer.close(within_seconds=PATIENCE_SECONDS)
    assert done == ["a", "c"]


def test_an_error_in_one_piece_loses_no_other(caplog: pytest.LogCaptureFixture) -> None:
    writer, done = WriterThread("test", most=10), list[int]()
    writer.do(lambda: done.append(1 // 0))
    writer.do(lambda: done.append(2))
    assert writer.close(within_seconds=PATIENCE_SECONDS)
    assert done == [2]
    assert "ZeroDivisionError" in caplog.text


def test_a_program_ends_though_a_piece_of_work_does_not() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert (ended.stdout, ended.stderr) == ("False\n", "")
