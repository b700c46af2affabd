"""Notices: a file or a command asks the program to leave, as SIGTERM would."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from common.errors import SettingsError
from common.program import notices
from common.program.notices import NoticeFlags
from common.program.stop_signals import IGNORABLE, Interrupted, StopSignal
from tests.rl_worker.loopback_server import wait_until


@pytest.fixture
def stop() -> Iterator[StopSignal]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, *IGNORABLE)}
    yield StopSignal(raises=True)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(SettingsError, match="--notice-command: is empty"):
        watch(NoticeFlags(notice_command=" "), lambda: None)


def watch(flags: NoticeFlags, begin: Callable[[], object]) -> None:
    """A program that begins something and then waits."""
    with flags.watched():
        begin()
        wait_until(lambda: False, "a notice")


@pytest.mark.usefixtures("stop")
def test_a_file_that_appears_is_a_notice(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    with pytest.raises(Interrupted):
        watch(NoticeFlags(notice_file=file), file.touch)


@pytest.mark.usefixtures("stop")
def test_a_file_that_is_there_already_is_a_notice_before_anything_begins(tmp_path: Path) -> None:
    (tmp_path / "notice").touch()
    with pytest.raises(Interrupted):
        watch(NoticeFlags(notice_file=tmp_path / "notice"), lambda: pytest.fail("it began"))


@pytest.mark.usefixtures("stop")
def test_a_command_that_succeeds_is_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "COMMAND_SECONDS", 0.5)
    file = tmp_path / "notice"
    with pytest.raises(Interrupted):
        watch(
            NoticeFlags(notice_command=f"cat '{file}' | grep -q terminate"),
            lambda: file.write_text("terminate at noon"),
        )


@pytest.mark.usefixtures("stop")
def test_a_command_that_cannot_be_run_is_named() -> None:
    with (
        pytest.raises(SettingsError, match="--notice-command 'curll -sf x': the shell cannot run it"),
        NoticeFlags(notice_command="curll -sf x").watched(),
    ):
        pytest.fail("it began")


@pytest.mark.usefixtures("stop")
def test_a_command_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notices, "LONGEST_SECONDS", 0.2)
    pid = tmp_path / "pid"
    with NoticeFlags(notice_command=f"sleep 1000 & echo $! > {pid}; wait").watched():
        child = int(pid.read_text())
    wait_until(
        lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE, "its end"
    )
    assert re.search("takes more than .* that is no notice", caplog.text)


def test_without_flags_nothing_is_watched(stop: StopSignal) -> None:
    before = len(psutil.Process(os.getpid()).threads())
    with NoticeFlags().watched():
        assert len(psutil.Process(os.getpid()).threads()) == before
    assert not stop.is_set()
