"""Slow simulators on two hosts: a killed one costs no acknowledged step, and comes back with what it remembers."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples import slow_simulators

ROOT = Path(__file__).parents[2]
FOLDER = Path(slow_simulators.__file__).parent
SECONDS = 100.0  # of the short form, on a machine with other work


def story(folder: Path, *flags: str, within_seconds: float = SECONDS) -> str:
    """What the example prints. All that it has started ends with it."""
    command = [sys.executable, "-m", "examples.slow_simulators", "--folder", str(folder), *flags]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as told:
        try:
            output = told.communicate(timeout=within_seconds)[0]
        except subprocess.TimeoutExpired:
            told.send_signal(signal.SIGINT)
            output = told.communicate()[0]
    assert told.returncode == 0, output
    return output


def check(output: str, *, simulators: int) -> None:
    """Workers are as many as the story says, and no acknowledged step is lost."""
    parts = re.findall(r"^(.+?) +(\d+) workers, +(\d+) steps/s, ", output, re.MULTILINE)
    assert [(what, int(workers)) for what, workers, _ in parts] == [
        ("at first", simulators),
        ("simulator-1 was killed", simulators - 1),
        (f"simulator-{simulators} was added", simulators),
        ("simulator-1 is back", simulators + 1),
    ]
    counted = re.search(r"acknowledged steps: (\d+) before the kill, (\d+) of living workers; run: (\d+)", output)
    back = re.search(r"killed after (\d+) acknowledged steps, and came back with (\d+)", output)
    assert counted, output
    assert back, output
    before, living, run = map(int, counted.groups())
    acknowledged, remembered = map(int, back.groups())
    assert before + living == run, "each acknowledged step is one of the run's"
    assert acknowledged <= remembered, "a step is remembered before it is pushed"


@pytest.mark.timeout(SECONDS + 20)
def test_a_simulator_is_killed_another_added_and_the_killed_one_comes_back(tmp_path: Path) -> None:
    output = story(tmp_path / "told", "--simulators", "2", "--seconds", "1")
    check(output, simulators=2)
    assert "20 games with the last weights: mean return -" in output
    assert ("both hosts are this machine" in output) or len(list((tmp_path / "told").glob("replay-*"))) == 2


@pytest.mark.nightly
@pytest.mark.timeout(1000)
def test_eight_simulators_learn(tmp_path: Path) -> None:
    output = story(tmp_path / "told", within_seconds=900)
    check(output, simulators=8)
    score = re.search(r"mean return (-\d+)$", output)
    assert score, output
    assert int(score[1]) > -250, output


def test_the_example_is_short() -> None:
    assert sum(len(file.read_text().splitlines()) for file in FOLDER.glob("*.py")) <= 150
