"""
`make staleness`: what late gradients cost.

One learner on CartPole pulls weights of a drawn age, plays and differentiates with these, and pushes. Each age has the
best of its learning rates, chosen by the mean over the seeds. Runs are written as they end, and a second call goes on.

The data also have three rules that are gone since, because they helped at no age: `bounded` (gradients later than the
mean age were discarded, and their steps counted as played), `inverse` (learning rate over staleness, Zhang et al. 2016;
rates of 3e-3 to 1e-1) and `delay_compensated` (Zheng et al. 2017; λ 1000).
"""

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.learning.results_file import ResultsFile
from benchmarks.learning.simulated_run import SimulatedRun
from ps_common.settings import run_spec
from ps_common.settings.run_spec import RunSpec

DATA = Path(__file__).parent / "staleness.jsonl"
RULE = "undamped"  # in the data: every gradient counts the same, as in Mnih et al. 2016
AGES = (0, 4, 16, 64)  # versions: the mean of what is drawn evenly from 0 to twice as many
LEARNING_RATES = (3e-4, 1e-3)
STEPS = 40_000  # 500 pushes of 80
LAST_STEPS = 10_000  # over which games count for the score


def main() -> None:
    parser = argparse.ArgumentParser(description="CartPole with gradients of each age")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    results = ResultsFile(DATA, ("rule", "age", "learning_rate", "seed"))
    every = product(AGES, LEARNING_RATES, range(arguments.seeds))
    jobs = [job for job in every if not results.has((RULE, *job))]
    with ProcessPoolExecutor(arguments.processes) as pool:
        running = [pool.submit(score, *job) for job in jobs]
        for ended in track(as_completed(running), "runs", len(jobs), console=Console(stderr=True)):
            results.add(ended.result())
    Console(width=120).print(table(results.rows))


def score(age: int, learning_rate: float, seed: int) -> dict[str, Any]:
    """The run as a row: mean return of the games that ended in its last steps."""
    torch.set_num_threads(1)
    run = RunSpec(
        seed=seed,
        environment=run_spec.Environment(id="CartPole-v1", envs=16),
        algorithm=run_spec.A3CSettings(
            unroll_length=5, reward_clip=0.0, reward_scale=0.1, gradient_clip=0.5, loss="mean"
        ),
        network=run_spec.NetworkSettings(name="mlp", hidden=(64,), separate=True),
        optimizer=run_spec.AdamSettings(),
        schedule=run_spec.Schedule(learning_rate=learning_rate, anneal_steps=2 * STEPS),
        budget=run_spec.Budget(max_steps=STEPS),
    )
    returns: list[float] = []

    def note(episodes: Any, global_steps: int, weights: torch.Tensor) -> None:
        if global_steps > STEPS - LAST_STEPS:
            returns.extend(episode.episode_return for episode in episodes)

    SimulatedRun(run, delays=range(2 * age + 1), on_unroll=note).to_the_end()
    mean = statistics.mean(returns) if returns else 0.0
    return {"rule": RULE, "age": age, "learning_rate": learning_rate, "seed": seed, "score": round(mean, 1)}


def table(rows: list[dict[str, Any]]) -> Table:
    """For each rule and age: mean over the seeds at the best learning rate, the seeds' lowest and highest, the rate."""
    shown = Table("rule", *(f"mean age {age}" for age in AGES))
    for rule in dict.fromkeys(row["rule"] for row in rows):
        cells = []
        for age in AGES:
            by_rate: dict[float, list[float]] = {}
            for row in rows:
                if row["age"] == age and row["rule"] == (rule if age else RULE):
                    by_rate.setdefault(row["learning_rate"], []).append(row["score"])
            if not by_rate:
                cells.append("–")
                continue
            rate, scores = max(by_rate.items(), key=lambda one: statistics.mean(one[1]))
            cells.append(f"{statistics.mean(scores):.0f} ({min(scores):.0f} to {max(scores):.0f}), {rate:g}")
        shown.add_row(rule, *cells)
    return shown


if __name__ == "__main__":
    main()
