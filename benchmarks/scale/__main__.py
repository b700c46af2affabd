"""
`make scale`: steps/s of a preset with 1, 2, 4, … workers up to all cores, as a gang, with several numbers of
environments, and with a GPU where there is one; and the command for what was best. It takes MINUTES at most. Flags
after `--` go to the run.
"""

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path

import torch
import tyro

from benchmarks.learning.programs import new_folder
from benchmarks.scale.measuring import NotMeasured, Workers
from benchmarks.scale.trials import Row, Trial, as_gangs, best_of, by_environments, by_workers, on_gpu
from benchmarks.servers import serving
from ps_common.errors import PsRlError
from ps_common.settings.run_files import load_preset
from rl_cluster.cores import usable_cores

MOST_TRIALS = 16  # which the seconds of a trial are reckoned by
MOST_SECONDS = 15.0  # of a trial
HEAD = ("way", "workers", "environments of each", "steps/s", "updates/s", "staleness", "server's share of a core",
        "seconds to start")  # fmt: skip
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
    gpu: bool = torch.cuda.is_available()
    """try a worker on the GPU, too"""
    folder: Path | None = None
    """new folder for table.md, rows.json and logs; runs/PRESET-scale-DATE when not given"""


class Scale:
    """The measurement, and what it has found so far."""

    def __init__(self, flags: Flags, folder: Path, of_the_run: Sequence[str]) -> None:
        self._flags, self._folder = flags, folder
        self._of_the_run = ["--preset", flags.preset, *of_the_run]
        self._envs = load_preset(flags.preset).environment.envs
        self._began = time.monotonic()
        self._until = self._began + 60 * flags.minutes
        self._seconds = flags.seconds or min(30 * flags.minutes / MOST_TRIALS, MOST_SECONDS)
        self.rows: list[Row] = []

    def run_trials(self) -> None:
        """Raises PsRlError when not even the first trial could be measured."""
        options = [*self._of_the_run, *ENDLESS, "--host", "127.0.0.1", "--port", "0"]
        with serving([sys.executable, "-m", "ps_server", *options]) as server:
            workers = Workers(server, self._folder)
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

    @property
    def command(self) -> list[str]:
        """The flags of rl-cluster for the best trial."""
        return [*self._of_the_run, *best_of(self.rows).trial.cluster_flags]

    def _say(self, line: str) -> None:
        print(f"{(time.monotonic() - self._began) / 60:4.1f} of {self._flags.minutes:g} minutes  {line}", flush=True)


def table(rows: Sequence[Row], *, title: str) -> str:
    """Markdown: a row for each trial; the best is bold."""
    best = best_of(rows)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    lines = [title, "", f"*{time.strftime('%Y-%m-%d')} · {machine}*", ""]
    lines += [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    for row in rows:
        cells = [row.trial.way, str(row.trial.workers), str(row.trial.envs), f"{row.steps_per_second:,.0f}"]
        cells += [f"{row.updates_per_second:,.0f}", f"{row.staleness:.1f}", f"{row.server_share:.2f}"]
        cells += [f"{row.start_seconds:.1f}"]
        lines.append(f"| {' | '.join(f'**{cell}**' if row is best else cell for cell in cells)} |")
    return "\n".join(lines) + "\n"


def main(flags: Flags, of_the_run: Sequence[str]) -> int:
    folder = new_folder(flags.folder, f"{flags.preset}-scale")
    folder.mkdir(parents=True)
    scale = Scale(flags, folder, of_the_run)
    scale.run_trials()
    print((folder / "table.md").read_text(), flush=True)
    print(f"on this machine: rl-cluster {shlex.join(scale.command)}")
    return 0


if __name__ == "__main__":
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    try:
        sys.exit(main(tyro.cli(Flags, args=sys.argv[1:split]), sys.argv[split + 1 :]))
    except PsRlError as error:
        sys.exit(f"scale: {error}")
