"""
The other factor of more workers: steps a second of real servers and workers, as far as there are cores.

scaling.py measures how many steps n workers need for a score. Here the same runs are real ones, of rl-cluster, with one
worker and with several in turn: steps/s, and the seconds until the last 100 training games averaged a score. Only A3C's
are to be compared so: in the training games of the Q methods each worker has an ε of its own. Every run is written as
it ends, and a second call goes on. Seconds mean something on a machine that does nothing else.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.learning.programs import train
from benchmarks.learning.results_file import ResultsFile
from benchmarks.learning.scaling import FOLDER, KEYS, Job, run_of
from benchmarks.learning.scaling_table import Row, grouped
from ps_common.errors import PsRlError, SettingsError
from ps_common.run_folder.paths import METRICS
from ps_common.run_folder.run_rows import MetricsRow, rows_in
from ps_common.settings import run_spec

Curve = list[tuple[float, int, float]]  # seconds since the first worker joined, steps, mean of the last 100 games


def main() -> None:
    flags = _flags()
    results = ResultsFile(flags.data, KEYS)
    for seed, method, workers in product(flags.seeds, flags.methods, flags.workers):
        job = Job(flags.game, method, workers, flags.learning_rate, seed, flags.steps)
        if not results.has(job.key):
            results.add(measured(job))
            Console(stderr=True).print({key: value for key, value in results.rows[-1].items() if key != "curve"})
    shown = (flags.game, flags.learning_rate, flags.steps)
    rows = [row for row in results.rows if (row["game"], row["learning_rate"], row["max_steps"]) == shown]
    Console(width=120).print(table(rows, score=flags.score))


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="steps a second, and seconds to a score, with one worker and several")
    parser.add_argument("--game", default="MinAtar/Breakout-v1")
    parser.add_argument("--methods", nargs="+", default=list(run_spec.ALGORITHM_SETTINGS))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=60_000, help="of all workers together, in each run")
    parser.add_argument("--score", type=float, default=3.0, help="of which the seconds are shown")
    parser.add_argument("--data", type=Path, default=FOLDER / "wall_clock.jsonl")
    return parser.parse_args()


def measured(job: Job) -> Row:
    """
    The run as a row; its speed is that of the second half, when all workers have joined.

    Raises SettingsError for too few steps.
    """
    with tempfile.TemporaryDirectory(prefix="wall-clock-") as name:
        settings = Path(name) / "settings.toml"
        settings.write_text(run_of(job).to_toml())
        run = train(Path(name) / "run", ["--config", str(settings), "--workers", str(job.workers)])
        rows = [row for row in rows_in(run.folder / METRICS, MetricsRow) if row.episodes >= 100]
    curve = [(round(60 * row.minutes, 2), row.global_steps, row.mean_return_100 or 0.0) for row in rows]
    return vars(job) | {"steps_per_second": speed(curve, of=job.max_steps), "curve": curve}


def speed(curve: Curve, *, of: int) -> int:
    """Steps/s in the second half of the steps. Raises SettingsError for a run that is too short to tell."""
    half = [point for point in curve if 2 * point[1] >= of]
    if len(half) < 2 or half[0][0] == half[-1][0]:
        raise SettingsError(f"--steps {of}: the second half of a run took less than a row of its metrics; give more")
    return round((half[-1][1] - half[0][1]) / (half[-1][0] - half[0][0]))


def table(rows: Sequence[Row], *, score: float) -> Table:
    """For each (method, workers): medians of steps/s and of seconds to the score, and ratios to one worker's."""
    shown = Table("method", "workers", "seeds", "steps/s", "of one worker's", f"seconds to {score:g}", "sooner")
    cells = dict(grouped(rows, "method", "workers"))
    for (method, workers), runs in cells.items():
        alone = cells.get((method, 1), runs)
        rate, rate_alone = (statistics.median(run["steps_per_second"] for run in of) for of in (runs, alone))
        seconds, seconds_alone = (statistics.median(seconds_to(run, score) for run in of) for of in (runs, alone))
        is_reached = max(seconds, seconds_alone) < float("inf")
        shown.add_row(
            *(method, str(workers), str(len(runs)), f"{rate:,.0f}", f"{rate / rate_alone:.2f}"),
            f"{seconds:.0f}" if seconds < float("inf") else "not reached",
            f"{seconds_alone / seconds:.2f}" if is_reached else "–",
        )
    return shown


def seconds_to(run: Row, score: float) -> float:
    """Until the last 100 training games averaged the score; infinite when they never did."""
    return next((seconds for seconds, _, mean in run["curve"] if mean >= score), float("inf"))


if __name__ == "__main__":
    try:
        main()
    except PsRlError as error:
        sys.exit(f"wall_clock: {error}")
