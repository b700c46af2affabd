"""Stop signals: polled, raised at once or after what must be whole, or ignored since the start."""

import os
import signal
from collections.abc import Iterator

import pytest

from common.program.stop_signals import Interrupted, StopSignal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


each_signal = pytest.mark.parametrize("number", SIGNALS)


@each_signal
def test_each_stop_signal_is_noticed(number: int) -> None:
    stop = StopSignal()
    assert not stop.is_set()
    os.kill(os.getpid(), number)
    assert stop.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_nohup_or_a_shell_ignores_stays_ignored(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)
    stop = StopSignal()
    os.kill(os.getpid(), number)
    assert not stop.is_set()
    assert signal.getsignal(number) is signal.SIG_IGN, "children inherit it"
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.is_set()


def test_sigterm_counts_though_it_was_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stop = StopSignal()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.is_set()


@each_signal
def test_a_signal_is_raised_at_once(number: int) -> None:
    StopSignal(raises=True)
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), number)


@each_signal
def test_a_signal_in_the_midst_is_raised_at_the_end_and_once(number: int) -> None:
    stop = StopSignal(raises=True)
    done = []

    def whole() -> None:
        with stop.postponed():
            with stop.postponed():
                os.kill(os.getpid(), number)
                os.kill(os.getpid(), number)
                done.append("inner")
            done.append("outer")

    with pytest.raises(Interrupted):
        whole()
    assert done == ["inner", "outer"]
    with stop.postponed():
        done.append("again")
    assert done[-1] == "again"


def test_an_error_in_the_midst_is_not_hidden() -> None:
    stop = StopSignal(raises=True)

    def broken() -> None:
        with stop.postponed():
            os.kill(os.getpid(), signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
