"""Stop signals: polled, raised at once or after what must be whole, or ignored since the start."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ps_common.program.stop_signals import Interrupted, StopSignal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


each_signal = pytest.mark.parametrize("number", SIGNALS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
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
def test_a_signal_in_a_grace_period_is_raised_when_that_is_over(number: int) -> None:
    stop = StopSignal(raises=True)

    def work() -> None:
        with stop.grace(0.05):
            os.kill(os.getpid(), number)
            assert stop.is_set()
            threading.Event().wait(30)
            pytest.fail("it was not interrupted")

    with pytest.raises(Interrupted):
        work()


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
