"""
`make scaling`: the score of each method against all workers' steps, with 1 to 16 workers (Mnih et al. 2016, figure 3).

The paper measures time to a score. A few cores show one factor of it, the steps: speed-up(n) = n · steps(1) / steps(n),
which is n if n workers together need no more steps than one. The workers are the real ones and take turns of one unroll
and one push, so each gradient has the staleness of n workers at equal speed, and the seed determines every result.

Each (game, method, n) has the best of four learning rates. The first seed tries all, the second the best two of these,
and the other seeds run with the best of those alone. Each actor draws its own ε; evaluations have the same ε for all.
Runs are written as they end, and a second call goes on where the first stopped. scaling_table.py reads them.
"""

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from benchmarks.learning.results_file import ResultsFile
from benchmarks.learning.scaling_table import Row, plot, ranked, table
from benchmarks.learning.simulated_run import SimulatedRun
from ps_common.protocol.messages import Episode
from ps_common.protocol.tensors import Schema
from ps_common.settings import run_spec
from ps_common.settings.run_spec import ActionValuesSettings, RunSpec
from rl_agent.agent import trained_agent
from rl_agent.environments.make import make_environments
from rl_eval.games import play

FOLDER = Path(__file__).parent
KEYS = ("game", "method", "workers", "learning_rate", "seed", "max_steps")
EVALUATIONS = 10  # of a run, evenly apart
GAMES = 20  # of an evaluation
EVALUATION_SEED = 1_000_000
# The paper's mixture of final ε, of which each actor draws one. It is annealed over a tenth of the steps: a run that
# learned only when ε is small would measure the schedule.
EPSILONS: dict[str, Any] = {"final_epsilons": (0.1, 0.01, 0.5), "epsilon_probabilities": (0.4, 0.3, 0.3)}


@dataclass(frozen=True)
class Job:
    """One run."""

    game: str
    method: str
    workers: int
    learning_rate: float
    seed: int
    max_steps: int

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of KEYS."""
        return tuple(vars(self).values())


def main() -> None:
    flags = _flags()
    results = ResultsFile(flags.data, KEYS)
    _measure("every learning rate", searches(flags), results, flags.processes)
    for stage, seeds, most in (("the best two", flags.seeds[1:2], 2), ("the best", flags.seeds[2:], 1)):
        _measure(stage, repetitions(flags, seeds, results.rows, most=most), results, flags.processes)
    rows = [row for row in results.rows if row["max_steps"] == flags.steps and row["seed"] in flags.seeds]
    Console(width=170).print(table(rows))
    plot(rows, flags.data.with_suffix(".png"))


def _measure(stage: str, jobs: Iterable[Job], results: ResultsFile, processes: int) -> None:
    """Run the jobs that have no row yet, and write their rows."""
    missing = [job for job in jobs if not results.has(job.key)]
    console = Console(stderr=True)
    with ProcessPoolExecutor(processes) as pool:
        running = [pool.submit(curve, job) for job in missing]
        for ended in track(as_completed(running), stage, len(missing), console=console):
            results.add(row := ended.result())
            console.print(" ".join(f"{key} {row[key]}" for key in KEYS), "score", row["scores"][-1])


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="scores against all workers' steps, with 1 to 16 workers")
    parser.add_argument("--games", nargs="+", default=["MinAtar/Breakout-v1", "MinAtar/SpaceInvaders-v1"])
    parser.add_argument("--methods", nargs="+", default=list(run_spec.ALGORITHM_SETTINGS))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[3e-4, 1e-3, 3e-3, 1e-2])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--steps", type=int, default=100_000, help="of all workers together, in each run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, default=FOLDER / "scaling.jsonl")
    return parser.parse_args()


def searches(flags: argparse.Namespace) -> Iterator[Job]:
    """The runs of the first seed, with every learning rate."""
    for game, method, workers, rate in product(flags.games, flags.methods, flags.workers, flags.learning_rates):
        yield Job(game, method, workers, rate, flags.seeds[0], flags.steps)


def repetitions(flags: argparse.Namespace, seeds: Sequence[int], rows: Sequence[Row], *, most: int) -> Iterator[Job]:
    """The runs of these seeds, with the best `most` learning rates in the rows of the seeds before them."""
    before = flags.seeds[: flags.seeds.index(seeds[0])] if seeds else []
    for seed, game, method, workers in product(seeds, flags.games, flags.methods, flags.workers):
        same = [game, method, workers, flags.steps]
        runs = [row for row in rows if [row["game"], row["method"], row["workers"], row["max_steps"]] == same]
        for best in ranked([row for row in runs if row["seed"] in before])[:most]:
            yield Job(game, method, workers, best[0]["learning_rate"], seed, flags.steps)


def run_of(job: Job) -> RunSpec:
    """The settings of a run; those of its method are the paper's, but for the target's interval."""
    kind = run_spec.ALGORITHM_SETTINGS[job.method]
    algorithm: run_spec.Algorithm = kind(unroll_length=5)
    if issubclass(kind, ActionValuesSettings):
        algorithm = kind(unroll_length=5, target_interval=1000, epsilon_anneal_steps=job.max_steps // 10, **EPSILONS)
    return RunSpec(
        seed=job.seed,
        environment=run_spec.Environment(id=job.game, envs=1),
        algorithm=algorithm,
        optimizer=run_spec.RmsPropSettings(epsilon=0.01),
        schedule=run_spec.Schedule(learning_rate=job.learning_rate, final_learning_rate=job.learning_rate),
        budget=run_spec.Budget(max_steps=job.max_steps),
    )


def curve(job: Job) -> dict[str, Any]:
    """The run as a row: `scores` are the mean returns of evaluation games after `steps`."""
    torch.set_num_threads(1)
    run = run_of(job)
    steps: list[int] = []
    scores: list[float] = []

    def evaluate(episodes: Sequence[Episode], global_steps: int, weights: Tensor) -> None:
        if global_steps * EVALUATIONS >= (len(steps) + 1) * job.max_steps:
            steps.append(global_steps)
            scores.append(round(score(run, simulated.run.weights.schema, weights), 2))

    simulated = SimulatedRun(run, workers=job.workers, on_unroll=evaluate)
    simulated.to_the_end()
    evaluate((), simulated.run.progress.global_steps, simulated.run.weights.flat)  # the last unroll ended the run
    return vars(job) | {"steps": steps, "scores": scores}


def score(run: RunSpec, schema: Schema, weights: Tensor) -> float:
    """Mean return of GAMES games: actions of a policy are sampled, action values play with the same ε in each run."""
    environments = make_environments(run.environment, count=GAMES)
    agent = trained_agent(run, environments, schema, weights, global_steps=0, seed=0, origin="the simulated run")
    games = list(play(agent, environments, episodes=GAMES, greedy=False, seed=EVALUATION_SEED))
    environments.close()
    return sum(game.score for game in games) / GAMES


if __name__ == "__main__":
    main()
