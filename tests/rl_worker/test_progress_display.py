"""What a person sees of a run: lines in a pipe, a panel in a terminal, and when it will be over."""

import io
from functools import partial
from typing import Any

import pytest
from rich.console import Console

from common.run_spec import Budget
from common.status import Status
from rl_worker import progress_display
from rl_worker.progress_display import LINE_SECONDS, ProgressDisplay


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


def line(
    capsys: pytest.CaptureFixture[str], budget: Budget | None = None, *, minutes: float = 5.0, **changes: Any
) -> str:
    with ProgressDisplay(budget or Budget()) as display:
        display.show(status(**changes), minutes=minutes)
    return capsys.readouterr().out


def test_a_pipe_gets_one_line_with_all_facts(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert line(capsys, minutes=5.04) == (
        "minutes 5.0  T 1,234,567  steps/s 1,500  frames/s 6,002  updates/s 12.3  staleness 1.26  workers 2  "
        "episodes 3,210  mean return of the last 100 -3.46  minutes left -\n"
    )


def test_before_the_first_game_has_ended_there_is_no_mean(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert "mean return of the last 100 -  " in line(capsys, mean_return_100=None, episodes=0)


def test_a_pipe_gets_a_line_every_ten_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    lines = 0
    with ProgressDisplay(Budget()) as display:
        for expected, seconds in [(1, 0.0), (1, 0.5), (1, LINE_SECONDS - 0.6), (2, 0.1), (2, 0.1), (3, LINE_SECONDS)]:
            clock.now += seconds
            display.show(status(), minutes=1.0)
            lines += capsys.readouterr().out.count("\n")
            assert lines == expected


@pytest.mark.parametrize(
    ("budget", "steps_per_second", "left"),
    [
        (Budget(), 100.0, "-"),
        (Budget(max_minutes=60), 100.0, "at most 55.0"),
        (Budget(max_minutes=3), 100.0, "at most 0.0"),
        (Budget(max_steps=18_000), 100.0, "at most 2.0"),  # 12,000 of them to go
        (Budget(max_steps=18_000), 0.0, "-"),
        (Budget(max_steps=18_000, max_minutes=6), 100.0, "at most 1.0"),
        (Budget(max_steps=18_000, max_minutes=60), 100.0, "at most 2.0"),
        (Budget(max_steps=6_000), 100.0, "at most 0.0"),
    ],
)
def test_the_minutes_left_are_those_to_the_first_limit(
    clock: Clock, capsys: pytest.CaptureFixture[str], budget: Budget, steps_per_second: float, left: str
) -> None:
    said = line(capsys, budget, global_steps=6_000, steps_per_second=steps_per_second)
    assert said.endswith(f"minutes left {left}\n")


def test_a_terminal_gets_a_panel_that_is_kept_up_to_date(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress_display, "Console", terminal)
    with ProgressDisplay(Budget()) as display:
        display.show(status(), minutes=1.0)
        display.show(status(global_steps=7_654_321), minutes=1.0)
        display.say("something to know")
    shown = screen.getvalue()
    assert "pong: serving" in shown
    assert "1,234,567" in shown
    assert "7,654,321" in shown, "two looks in the same moment are both shown"
    assert "something to know" in shown


def test_a_line_of_its_own_goes_into_a_pipe_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay(Budget()) as display:
        display.say("[bold] is not markup")
    assert capsys.readouterr().out == "[bold] is not markup\n"
