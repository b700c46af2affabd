"""Signals: at once, or after what must be whole."""

import os
import signal
from collections.abc import Iterator

import pytest

from rl_worker.shell.interrupts import Interrupted, Interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
each_signal = pytest.mark.parametrize("number", SIGNALS)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    listening = Interrupts()
    listening.listen()
    yield listening
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@each_signal
def test_a_signal_is_raised_at_once(interrupts: Interrupts, number: int) -> None:
    with pytest.raises(Interrupted):
        send(number)


@each_signal
def test_a_signal_in_the_midst_is_raised_at_the_end_and_once(interrupts: Interrupts, number: int) -> None:
    done = []

    def whole() -> None:
        with interrupts.postponed():
            with interrupts.postponed():
                send(number)
                send(number)
                done.append("inner")
            done.append("outer")

    with pytest.raises(Interrupted):
        whole()
    assert done == ["inner", "outer"]
    with interrupts.postponed():
        done.append("again")
    assert done[-1] == "again"


def test_an_error_in_the_midst_is_not_hidden(interrupts: Interrupts) -> None:
    def broken() -> None:
        with interrupts.postponed():
            send(signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
