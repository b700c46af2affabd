"""
`make scaling`: the steps that each method needs with 1 … 16 workers, as in Table 2 of Mnih et al. 2016.

The paper measures time to a fixed score. A few cores can show only one factor of it, the steps: speed-up(n) =
n · steps(1) / steps(n), which is n if more workers need no more steps in total. The workers are the real ones, each in
a thread, and take turns of one unroll and one push. So each gradient has the staleness of n workers at equal speed, and
the seed determines every result. The task is Catch; each method has the same learning rate for every n.
"""

import argparse
import json
import statistics
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import torch
from matplotlib import pyplot
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import catch
from common.errors import RunEnded
from common.protocol.messages import Episode, Push
from common.protocol.tensors import Schema
from common.settings import run_spec
from common.settings.run_spec import RunSpec
from ps_server.state.lineage import Lineage
from ps_server.state.training_run import TrainingRun
from rl_worker.agent import build_agent, collector_for
from rl_worker.environments.make import make_environments
from rl_worker.networks.flat_network import FlatNetwork
from rl_worker.shell.remote_parameters import Newest
from rl_worker.training import train

WORKERS = (1, 2, 4, 8, 16)
PAPER = {
    "one_step_q": (1.0, 3.0, 6.3, 13.3, 24.1),
    "one_step_sarsa": (1.0, 2.8, 5.9, 13.1, 22.1),
    "n_step_q": (1.0, 2.7, 5.9, 10.7, 17.2),
    "a3c": (1.0, 2.1, 3.7, 6.9, 12.5),
}
SOLVED = 0.8  # mean return of the last 100 episodes: 90 of 100 balls are caught
MOST_STEPS = 400_000
EPSILON = {"final_epsilons": (0.05,), "epsilon_probabilities": (1.0,), "epsilon_anneal_steps": 10_000}
ALGORITHMS: dict[str, run_spec.Algorithm] = {
    "one_step_q": run_spec.OneStepQSettings(target_interval=500, gradient_clip=0.0, **EPSILON),
    "one_step_sarsa": run_spec.OneStepSarsaSettings(target_interval=500, gradient_clip=0.0, **EPSILON),
    "n_step_q": run_spec.NStepQSettings(target_interval=500, gradient_clip=0.0, **EPSILON),
    "a3c": run_spec.A3CSettings(unroll_length=5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="steps to a score with 1 to 16 workers, for each method")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    jobs = list(product(ALGORITHMS, WORKERS, range(arguments.seeds)))
    with ProcessPoolExecutor(arguments.processes) as pool:
        steps = dict(zip(jobs, pool.map(_job, jobs), strict=True))
    folder = Path(__file__).parent
    found = [{"method": m, "workers": n, "seed": s, "steps": count} for (m, n, s), count in steps.items()]
    (folder / "scaling.json").write_text(json.dumps(found, indent=1) + "\n")
    speedups = {method: _speedups(steps, method, arguments.seeds) for method in ALGORITHMS}
    table = Table("method", *(f"{n} workers" for n in WORKERS), "the paper at 16", "median steps of one worker")
    for method, (ratios, alone) in speedups.items():
        table.add_row(method, *(f"{ratio:.1f}" for ratio in ratios), f"{PAPER[method][-1]:.1f}", f"{alone:,.0f}")
    Console(width=140).print(table)
    _plot({method: ratios for method, (ratios, _) in speedups.items()}, folder / "scaling.png")


def steps_to_score(method: str, workers: int, seed: int) -> int:
    """Global steps until the mean return of 100 episodes is SOLVED; MOST_STEPS if it never is."""
    torch.set_num_threads(1)
    run = RunSpec(
        seed=seed,
        environment=run_spec.Environment(id=catch.ID, envs=1),
        algorithm=ALGORITHMS[method],
        network=run_spec.Network(name="mlp", hidden=(64,), activation="relu"),
        optimizer=run_spec.RmsPropSettings(epsilon=0.01),
        schedule=run_spec.Schedule(learning_rate=1e-3, final_learning_rate=1e-3),
        budget=run_spec.Budget(max_steps=MOST_STEPS, until_return=SOLVED),
    )
    cluster = _Cluster(run, workers)
    threads = [threading.Thread(target=_work, args=(cluster, run, number)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return cluster.run.progress.global_steps


class _Cluster:
    """A run, and the turns in which its workers collect an unroll and push its gradient."""

    def __init__(self, run: RunSpec, workers: int) -> None:
        self.run = TrainingRun(run, Lineage.begun("1", secret="s", draw=0), now=0.0)
        self._turns = [threading.Semaphore(0) for _ in range(workers)]
        self._turns[0].release()

    def wait_for_turn(self, worker: int) -> None:
        self._turns[worker].acquire()

    def end_turn(self, worker: int) -> None:
        self._turns[(worker + 1) % len(self._turns)].release()


class _Parameters:
    """The run's parameters as one worker sees them; a turn lasts from one push to the next."""

    def __init__(self, cluster: _Cluster, worker: int, schema: Schema) -> None:
        self._cluster, self._worker, self._schema = cluster, worker, schema
        self._run = cluster.run
        self._name = f"worker-{worker}"
        self._pushes = 0
        self._run.ledger.open(self._name, 1, proof="")

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        return self._newest(self._run.weights.target if target else self._run.weights.flat)

    def push_pull(self, gradient: Tensor, *, computed_on: Newest, steps: int) -> Newest:
        self._pushes += 1
        push = Push(
            request=1,
            sequence=self._pushes,
            computed_on=computed_on.version,
            epoch=1,
            schema_hash=self._schema.hash,
            steps=steps,
        )
        self._run.settle([(self._name, push, [gradient.numpy().data.cast("B")])])
        newest = self._newest(self._run.weights.flat)
        self._cluster.end_turn(self._worker)
        self._cluster.wait_for_turn(self._worker)
        if self._run.end_reason(now=0.0):
            raise RunEnded("solved, or too long")
        return newest  # stale by one round of turns

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        for episode in episodes:
            self._run.progress.episode_finished(episode, self._run.spec.budget, now=0.0)

    def _newest(self, weights: Tensor) -> Newest:
        store = self._run.weights
        return Newest(1, store.version, self._run.progress.global_steps, store.target_version, weights.clone())


def _work(cluster: _Cluster, run: RunSpec, worker: int) -> None:
    seed = 1000 * (run.seed or 0) + worker
    cluster.wait_for_turn(worker)
    environments = make_environments(run.environment, count=1)
    algorithm = build_agent(run, environments, device=torch.device("cpu"), seed=seed)
    network = FlatNetwork(algorithm.network)
    if cluster.run.store is None:
        cluster.run.seed(network.schema, network.weights)
    collector = collector_for(algorithm, environments, seed=seed)
    times = iter(range(10**9))
    try:
        # A clock that advances by a second per reading: training reports after every unroll.
        train(_Parameters(cluster, worker, network.schema), network, collector, algorithm, clock=lambda: next(times))
    except RunEnded:
        cluster.end_turn(worker)


def _job(job: tuple[str, int, int]) -> int:
    return steps_to_score(*job)


def _speedups(steps: dict[tuple[str, int, int], int], method: str, seeds: int) -> tuple[list[float], float]:
    """n · steps(1) / steps(n) for each n, with medians over the seeds; then steps(1)."""
    medians = [statistics.median(steps[method, n, seed] for seed in range(seeds)) for n in WORKERS]
    return [n * medians[0] / median for n, median in zip(WORKERS, medians, strict=True)], medians[0]


def _plot(speedups: dict[str, list[float]], path: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(6, 5), layout="constrained")
    axes.plot(WORKERS, WORKERS, color="gray", linestyle=":", label="linear")
    for method, ratios in speedups.items():
        (line,) = axes.plot(WORKERS, ratios, marker="o", label=method)
        axes.plot(WORKERS, PAPER[method], linestyle="--", color=line.get_color(), alpha=0.5)
    axes.set(xlabel="workers", ylabel="speed-up: n · steps(1) / steps(n)", xscale="log", yscale="log")
    axes.set_title("Catch (lines) and the paper's mean of seven games (dashes)")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
