"""
`make peers`: steps/s of ps-rl and of its peers with the same network and settings, in turn. `make peers-scores`: each
as its authors recommend, with scores after some minutes: Pong without sticky actions and with a probability of 0.25,
and Hopper by SAC.

The peers' virtual environments are made by `make`; a table of results goes into a page of benchmarks/results.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import tyro

from benchmarks.peers import page
from benchmarks.peers.measuring import Figures, NotMeasured, run
from benchmarks.peers.runners import Runner, hopper_as_recommended, pong_as_recommended, same_network

BUSY_SECONDS = 2.0  # in which the load of others is measured, before each run
END_SECONDS = 3.0  # that a program takes to leave, about
STICKY = (0.0, 0.25)


@dataclass(frozen=True, kw_only=True)
class Flags:
    """ps-rl beside its peers on two cores, in turn."""

    scores: bool = False
    """each as its authors recommend, with its score; else the same network and settings on both sides"""
    turns: int = 3
    """of the comparison of speeds"""
    seconds: float = 60.0
    """of a run whose speed is measured, from its command on"""
    warm_seconds: float = 20.0
    """of them, that do not count for steps/s"""
    minutes: float = 8.0
    """of a run for its score"""
    seed: int = 1
    """of every run"""
    venvs: Path = Path(".peers")
    """folder of the peers' virtual environments"""
    page: Path = Path("benchmarks/results/peers.md")
    """file whose section is written anew"""


class Comparison:
    """Runs in turn, with a line for each."""

    def __init__(self, flags: Flags, *, runs: int, seconds: float) -> None:
        self._flags, self._seconds = flags, seconds
        self._minutes = runs * (seconds + BUSY_SECONDS + END_SECONDS) / 60
        self._began = time.monotonic()
        self.busy: list[float] = []
        self._say(f"{runs} runs of {seconds:g} s each")

    def measure(self, runner: Runner, what: str, *, sticky: float | None) -> Figures | None:
        self.busy.append(psutil.cpu_percent(BUSY_SECONDS))
        try:
            found = run(
                runner,
                seconds=self._seconds,
                warm_seconds=self._flags.warm_seconds,
                sticky=sticky,
                seed=self._flags.seed,
            )
        except NotMeasured as why:
            self._say(f"{what}, {runner.name}: not measured: {why}")
            return None
        score = "" if found.mean_return is None else f", {found.mean_return:.1f} points in {found.games} games"
        took = f"first update after {found.first_update_seconds:.1f} s, {found.memory_mib:,.0f} MiB"
        self._say(f"{what}, {runner.name}: {found.steps_per_second:,.0f} steps/s, {took}{score}")
        return found

    def _say(self, line: str) -> None:
        print(f"{(time.monotonic() - self._began) / 60:4.1f} of {self._minutes:.1f} minutes  {line}", flush=True)


def compare_speeds(flags: Flags, runners: Sequence[Runner]) -> str:
    """The section of the page."""
    comparison = Comparison(flags, runs=flags.turns * len(runners), seconds=flags.seconds)
    turns: dict[Runner, list[Figures | None]] = {runner: [] for runner in runners}
    for turn in range(flags.turns):
        for runner in runners:
            turns[runner].append(comparison.measure(runner, f"turn {turn + 1}", sticky=0.0))
    return page.same_network(turns, page.conditions(comparison.busy, "make peers"))


def compare_scores(flags: Flags) -> str:
    """The same for scores."""
    runs: list[tuple[Runner, float | None]] = [
        (runner, sticky) for sticky in STICKY for runner in pong_as_recommended(flags.venvs)
    ]
    runs += [(runner, None) for runner in hopper_as_recommended(flags.venvs)]
    comparison = Comparison(flags, runs=len(runs), seconds=60 * flags.minutes)
    found: dict[tuple[Runner, float | None], Figures | None] = {}
    for runner, sticky in runs:
        what = "Hopper" if sticky is None else f"sticky {sticky:g}"
        found[runner, sticky] = comparison.measure(runner, what, sticky=sticky)
    command = f'make peers-scores ARGS="--minutes {flags.minutes:g}"'
    return page.as_recommended(found, flags.minutes, page.conditions(comparison.busy, command))


def main(flags: Flags) -> None:
    """Measure, and write the section of the page."""
    flags = replace(flags, venvs=flags.venvs.absolute())  # each run has a folder of its own
    if flags.scores:
        title, section = page.RECOMMENDED, compare_scores(flags)
    else:
        title, section = page.SAME, compare_speeds(flags, same_network(flags.venvs))
    page.put(flags.page, title, section)
    print(f"\n{section}\n\nwritten to {flags.page}")


if __name__ == "__main__":
    main(tyro.cli(Flags, args=sys.argv[1:]))
