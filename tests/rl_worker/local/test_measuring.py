"""Numbers chosen by trying: which are tried, which is taken, and a trial of a real worker."""

import time

import pytest
import torch

from common.settings.run_files import load_preset
from rl_worker.local import measuring
from rl_worker.local.measuring import chosen, in_words, measured_flags, steps_per_second, tried
from rl_worker.settings import spelled_out


@pytest.mark.parametrize(
    ("speeds", "number"),
    [
        ({1: 100.0, 2: 180.0, 4: 300.0, 8: 310.0}, 4),
        ({1: 100.0, 2: 95.0}, 1),
        ({8: 10.0}, 8),
    ],
)
def test_the_smallest_number_that_is_nearly_the_fastest_is_taken(speeds: dict[int, float], number: int) -> None:
    assert chosen(speeds) == number


def test_trials_end_when_more_is_no_faster_twice() -> None:
    speeds = {1: 10.0, 2: 20.0, 4: 19.0, 8: 30.0, 16: 30.0, 32: 29.0, 64: 90.0}
    assert list(tried(list(speeds), speeds.__getitem__, lambda: 0.0)) == [1, 2, 4, 8, 16, 32]


def test_no_trial_begins_when_time_is_up() -> None:
    now = 0.0

    def slow(number: int) -> float:
        nonlocal now
        now += measuring.MOST_SECONDS / 2 + 1
        return float(number)

    assert list(tried([1, 2, 4, 8], slow, lambda: now)) == [1, 2]


def test_a_trial_plays_and_learns() -> None:
    run = load_preset("cartpole")
    assert steps_per_second(run, 3, device=torch.device("cpu"), clock=time.monotonic) > 0


def test_what_is_chosen_becomes_flags_and_a_line_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    run, lines = load_preset("cartpole"), list[str]()
    monkeypatch.setattr(measuring, "steps_per_second", lambda run, count, **how: float(min(count, 4) * 1000))
    flags = measured_flags(run, envs=True, threads=2, device=torch.device("cpu"), say=lines.append)
    assert flags == ["--envs", "4", "--threads", "1"]
    assert lines == [
        "measured steps per second by environments: 1: 1,000, 2: 2,000, 4: 4,000, 8: 4,000, 16: 4,000; environments 4",
        "measured steps per second by threads: 1: 4,000, 2: 4,000; threads 1",
    ]
    assert in_words({2: 5.0}, "threads") == "measured steps per second by threads: 2: 5; threads 2"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--server a:1 --envs auto --seed 3", "--server a:1 --measure-envs --seed 3"),
        ("--envs=auto", "--measure-envs"),
        ("--envs 4 --threads auto", "--envs 4 --threads auto"),
        ("", ""),
    ],
)
def test_envs_auto_is_spelled_out(typed: str, meant: str) -> None:
    assert spelled_out(typed.split()) == meant.split()
