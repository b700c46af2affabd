"""The progress of a run for a person: lines in a pipe, a panel in a terminal, and the time left."""

import io
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from rich.console import Console

from ps_common.program import progress_display
from ps_common.program.progress_display import LINE_SECONDS, ProgressDisplay
from ps_common.protocol.status import Status, WorkerStatus


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress_display, "time", clock)
    return clock


def status(**changes: Any) -> Status:
    facts: dict[str, Any] = {
        "phase": "serving",
        "epoch": 1,
        "preset": "pong",
        "frames_per_step": 4,
        "global_steps": 1_234_567,
        "steps_per_second": 1500.4,
        "updates_per_second": 12.34,
        "staleness_recent": 1.256,
        "episodes": 3210,
        "mean_return_100": -3.456,
        "refused": {},
        "not_modified": 0,
        "checkpoint_version": 0,
        "checkpoint_failures": 0,
        "workers_alive": 2,
        "workers": (),
    }
    return Status(**facts | changes)


def worker(name: str, **changes: Any) -> WorkerStatus:
    facts: dict[str, Any] = {
        "worker_id": name,
        "number": 0,
        "host": "here",
        "environments": 8,
        "alive": True,
        "silent_seconds": 0.1,
        "pushes": 3,
        "discarded": 0,
        "steps": 96,
        "staleness": 1.0,
        "meters": {"steps_per_second": 761.2},
    }
    return WorkerStatus(**facts | changes)


def line(capsys: pytest.CaptureFixture[str], **changes: Any) -> str:
    with ProgressDisplay() as display:
        display.show(status(**{"minutes": 5.0} | changes))
    return capsys.readouterr().out


Screens = Callable[..., str]


@pytest.fixture
def screens(monkeypatch: pytest.MonkeyPatch) -> Screens:
    """The last frame that a terminal of a width shows when it is given one status after another."""

    def shown(*statuses: Status, width: int, height: int = 40, finish: bool = False, encoding: str = "utf-8") -> str:
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        terminal = partial(Console, file=file, force_terminal=True, width=width, height=height, color_system=None)
        monkeypatch.setattr(progress_display, "Console", terminal)
        with ProgressDisplay() as display:
            for number, one in enumerate(statuses[:-1]):
                display.show(msgspec.structs.replace(one, minutes=number / 10))
            last = msgspec.structs.replace(statuses[-1], minutes=len(statuses) / 10)
            (display.finish if finish else display.show)(last)
        file.flush()
        frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", file.buffer.getvalue().decode(encoding))
        return frames[max(frames.rfind("╭"), frames.rfind("+- "), 0) :]

    return shown


def test_a_pipe_gets_a_line_every_ten_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = 0
    with ProgressDisplay() as display:
        for expected, seconds in [(1, 0.0), (1, 0.5), (1, LINE_SECONDS - 0.6), (2, 0.1), (2, 0.1), (3, LINE_SECONDS)]:
            clock.now += seconds
            display.show(status())
            lines += capsys.readouterr().out.count("\n")
            assert lines == expected


@pytest.mark.parametrize(
    ("budget", "steps_per_second", "left"),
    [
        ({}, 100.0, "-"),
        ({"max_minutes": 60.0}, 100.0, "at most 55.0"),
        ({"max_minutes": 3.0}, 100.0, "at most 0.0"),
        ({"max_steps": 18_000}, 100.0, "at most 2.0"),  # 12,000 of them to go
        ({"max_steps": 18_000}, 0.0, "-"),
        ({"max_steps": 18_000, "max_minutes": 6.0}, 100.0, "at most 1.0"),
        ({"max_steps": 18_000, "max_minutes": 60.0}, 100.0, "at most 2.0"),
        ({"max_steps": 6_000}, 100.0, "at most 0.0"),
        ({"max_steps": 18_000, "ending": "stopped"}, 100.0, "-"),
    ],
)
def test_the_minutes_left_are_those_to_the_first_limit(
    clock: Clock, capsys: pytest.CaptureFixture[str], budget: dict[str, Any], steps_per_second: float, left: str
) -> None:
    text = line(capsys, **budget, global_steps=6_000, steps_per_second=steps_per_second)
    assert f"  left {left}  " in text


@pytest.mark.parametrize("width", [40, 60, 79, 80, 120, 160])
def test_the_panel_is_as_wide_as_the_terminal_and_shows_all_there_is(screens: Screens, width: int) -> None:
    facts = {
        "environment": "ALE/Pong-v5",
        "best_mean_return_100": -2.1,
        "until_return": 18.0,
        "max_steps": 3_000_000,
        "workers": (worker("worker-0"), worker("worker-1", meters={})),
    }
    shown = screens(status(**facts), width=width)
    assert {len(row) for row in shown.splitlines()} == {width}
    for fact in (
        "pong  ALE/Pong-v5", "training", "last 100 -3.46", "best -2.10", "target 18.00", "games 3,210", "minutes 0.1",
        "left at most 19.6", "T 1,234,567 41%", "of 3,000,000", "steps/s 1,500", "frames/s 6,002", "updates/s 12.3",
        "staleness 1.26", "worker-0 761/s", "worker-1 0/s",
    ):  # fmt: skip
        assert fact in shown, shown


def test_a_notebook_has_one_panel_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Mock()
    display = Mock(return_value=cell)
    monkeypatch.setitem(sys.modules, "IPython.display", Mock(display=display))
    monkeypatch.setattr(progress_display, "Console", partial(Console, force_jupyter=True))
    with ProgressDisplay() as shown:
        for steps in (1000, 2000, 3000):
            shown.show(status(global_steps=steps))
    display.assert_called_once()
    [panels] = [[call.args[0] for call in cell.update.call_args_list]]
    assert len(panels) == 2
    assert "3,000" in panels[-1]._repr_mimebundle_(include=(), exclude=())["text/html"]
