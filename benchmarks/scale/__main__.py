"""
`make scale`: steps/s of a preset with 1, 2, 4, … workers up to all cores, as a gang, with several numbers of
environments, and with a GPU where there is one; then the preset is trained as was best, and the command printed.

It takes MINUTES: the trials at most three fifths of them, or all with --no-train. Flags after `--` go to the run.
"""

import json
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path

import torch
import tyro

from benchmarks.learning.programs import new_folder, train
from benchmarks.scale.measuring import NotMeasured, Start, Workers, start_worker
from benchmarks.scale.report import picture, table
from benchmarks.scale.trials import Row, Trial, as_gangs, best_of, by_environments, by_workers, on_gpu
from benchmarks.servers import serving
from ps_common.errors import PsRlError
from ps_common.program.resources import usable_cores
from ps_common.settings.run_files import load_preset

TRIALS_SHARE = 0.6  # of the minutes, where the preset is trained in the rest
MOST_TRIALS = 16  # which the seconds of a trial are reckoned by
MOST_SECONDS = 15.0  # of a trial
START_MINUTES = 0.5  # left for the programs of the run to start and to end
ENDLESS = ("--max-steps", "0", "--max-episodes", "0", "--max-minutes", "0", "--until-return", "None")


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What this machine gives with a preset, and the command that uses it. Flags of the run follow after --."""

    preset: str = "pong"
    """the preset to measure"""
    minutes: float = 10.0
    """time for everything"""
    seconds: float | None = None
    """time of a trial after its workers have started; by the minutes when not given"""
    cores: int = usable_cores()
    """most workers on CPUs"""
    train: bool = True
    """train the preset to its score in the end, as was best"""
    gpu: bool = torch.cuda.is_available()
    """try a worker on the GPU, too"""
    folder: Path | None = None
    """new folder for table.md, picture.png, rows.json, logs and the run; runs/PRESET-scale-DATE when not given"""


class Scale:
    """The measurement, and what it has found so far."""

    def __init__(self, flags: Flags, folder: Path, of_the_run: Sequence[str]) -> None:
        self._flags, self._folder = flags, folder
        self._of_the_run = ["--preset", flags.preset, *of_the_run]
        self._envs = load_preset(flags.preset).environment.envs
        self._began = time.monotonic()
        share = (TRIALS_SHARE if flags.train else 1.0) * 60 * flags.minutes
        self._until = self._began + share
        self._seconds = flags.seconds or min(share / 2 / MOST_TRIALS, MOST_SECONDS)
        self.rows: list[Row] = []

    def run_trials(self, start: Start) -> None:
        """Raises PsRlError when not even the first trial could be measured."""
        options = [*self._of_the_run, *ENDLESS, "--host", "127.0.0.1", "--port", "0"]
        with serving([sys.executable, "-m", "ps_server", *options]) as server:
            workers = Workers(server, self._folder, start=start)
            try:
                self._measure(workers, by_workers(self._flags.cores, self._envs))
                self._measure(workers, as_gangs(self._flags.cores, self._envs))
                if self.rows:
                    with_cpus = by_environments(best_of(self.rows).trial)
                    in_turn = zip_longest(with_cpus, on_gpu() if self._flags.gpu else ())
                    self._measure(workers, filter(None, chain.from_iterable(in_turn)))
            finally:
                workers.end()
        if not self.rows:
            raise PsRlError(f"--minutes {self._flags.minutes:g}: no trial was measured in that time")

    def _measure(self, workers: Workers, trials: Iterable[Trial]) -> None:
        for trial in trials:
            self._say(f"{trial} …")
            try:
                row = workers.measure(trial, seconds=self._seconds, until=self._until)
            except NotMeasured as why:
                self._say(f"{trial}: not measured: {why}")
                continue
            self.rows.append(row)
            self._say(f"{trial}: {row.steps_per_second:,.0f} steps/s, {row.updates_per_second:,.0f} updates/s")
            self._write()

    def _write(self) -> None:
        (self._folder / "rows.json").write_text(json.dumps([asdict(row) for row in self.rows], indent=1) + "\n")
        (self._folder / "table.md").write_text(table(self.rows, title=f"`{shlex.join(self._of_the_run)}`"))
        picture(self.rows, self._folder / "picture.png", envs=self._envs)

    def train_best(self) -> str:
        """How the run of the best trial went, as a sentence."""
        minutes = self._flags.minutes - (time.monotonic() - self._began) / 60 - START_MINUTES
        if minutes <= 0:
            return "no time was left to train"
        run = train(self._folder / "run", [*self.command, "--max-minutes", f"{minutes:.2f}"])
        if run.minutes_to_target is not None:
            return f"it came to its score after {run.minutes_to_target:.2f} minutes and {run.steps:,} steps"
        return (
            f"it did not come to its score in {run.minutes:.2f} minutes and {run.steps:,} steps: {run.mean_return_100}"
        )

    @property
    def command(self) -> list[str]:
        """The flags of rl-cluster for the best trial."""
        return [*self._of_the_run, *best_of(self.rows).trial.cluster_flags]

    def _say(self, line: str) -> None:
        print(f"{(time.monotonic() - self._began) / 60:4.1f} of {self._flags.minutes:g} minutes  {line}", flush=True)


def main(flags: Flags, of_the_run: Sequence[str], *, start: Start = start_worker) -> int:
    folder = new_folder(flags.folder, f"{flags.preset}-scale")
    folder.mkdir(parents=True)
    scale = Scale(flags, folder, of_the_run)
    scale.run_trials(start)
    print((folder / "table.md").read_text(), flush=True)
    if flags.train:
        print(f"training with {best_of(scale.rows).trial} …", flush=True)
        outcome = scale.train_best()
        with (folder / "table.md").open("a") as file:
            file.write(f"\nTrained with the best: {outcome}.\n")
        print(outcome)
    print(f"on this machine: rl-cluster {shlex.join(scale.command)}")
    return 0


if __name__ == "__main__":
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    try:
        sys.exit(main(tyro.cli(Flags, args=sys.argv[1:split]), sys.argv[split + 1 :]))
    except PsRlError as error:
        sys.exit(f"scale: {error}")
