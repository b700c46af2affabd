"""Signals that ask a program to leave, and those that were ignored when it started."""

import os
import signal
from collections.abc import Iterator

import pytest

from common.program.stop_signals import StopSignal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_each_of_them_is_heard(number: int) -> None:
    stop = StopSignal()
    assert not stop.is_set()
    os.kill(os.getpid(), number)
    assert stop.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_nohup_or_a_shell_has_ignored_stays_ignored(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)
    stop = StopSignal()
    os.kill(os.getpid(), number)
    assert not stop.is_set()
    assert signal.getsignal(number) is signal.SIG_IGN, "children inherit it"
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.is_set()


def test_sigterm_is_heard_though_it_was_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stop = StopSignal()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.is_set()
