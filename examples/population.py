"""
Population-based training (Jaderberg et al. 2017) on one machine: `python -m examples.population CartPole-v1`.

Eight runs train beside each other, each with a learning rate and an entropy weight of its own. After each generation of
steps the worst quarter gives up: each of these becomes a new run, with the weights of one of the best quarter
(`start_from`) and with its settings, a little changed. So settings become a schedule, and weights are never thrown away
but for better ones. The same command goes on where it was interrupted: runs are resumed, and population.json says how
far all are. Runs with workers of their own, on several machines, would differ in `train(workers=4, …)` alone.
"""

import argparse
import json
import random
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from os import sched_getaffinity
from pathlib import Path
from statistics import fmean
from typing import Any

from ps_rl import Run, train

FACTORS = (0.8, 1.25)  # by which a setting that is taken over changes
STATE = "population.json"


@dataclass(frozen=True)
class Member:
    """One run of the population: where it is, what it is trained with, and how far and good it is."""

    folder: str
    seed: int
    learning_rate: float
    entropy_weight: float
    start_from: str = ""
    parent: str = ""  # the run whose weights it began with
    steps: int = 0  # of this run, without those of its parents
    score: float = float("-inf")  # the mean return of the later half of its games in this generation


def trained(member: Member, environment: str, steps: int) -> Member:
    """The member after so many more steps, in this process."""
    folder, end = Path(member.folder), member.steps + steps
    settings: dict[str, Any] = {"learning_rate": member.learning_rate, "entropy_weight": member.entropy_weight}
    if not any(folder.glob("checkpoints/*.safetensors")):
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was interrupted before it had any
        settings |= {"environment": environment, "algorithm": "a3c", "seed": member.seed}
        train(workers=0, run_dir=folder, start_from=member.start_from, max_steps=end, **settings)
    elif (status := Run.open(folder).status) is None or status.global_steps < end:  # else interrupted after it
        train(workers=0, resume=folder, max_steps=end, **settings)
    games = [game.episode_return for game in Run.open(folder).episodes() if game.global_steps > member.steps]
    return replace(member, steps=end, score=fmean(games[-len(games) // 2 :]) if games else float("-inf"))


def next_generation(population: Sequence[Member], root: Path, generation: int) -> list[Member]:
    """The worst quarter takes over weights and settings of the best; the others go on as they are."""
    draw = random.Random(f"{population[0].seed} {generation}")
    ranked = sorted(population, key=lambda member: member.score, reverse=True)
    quarter = max(1, len(ranked) // 4)
    replaced = {}
    for winner, loser in zip(ranked[:quarter], ranked[-quarter:], strict=True):
        folder = root / f"{Path(loser.folder).name.partition('-')[0]}-{generation}"
        weights = root / f"{folder.name}.safetensors"  # a copy: the winner goes on, and its files with it
        shutil.copy(Run.open(winner.folder).checkpoints()[0], weights)
        replaced[loser.folder] = Member(
            folder=str(folder),
            seed=draw.randrange(10**6),
            learning_rate=winner.learning_rate * draw.choice(FACTORS),
            entropy_weight=winner.entropy_weight * draw.choice(FACTORS),
            start_from=str(weights),
            parent=winner.folder,
        )
    return [replaced.get(member.folder, member) for member in population]


def first_generation(root: Path, members: int, seed: int) -> list[Member]:
    draw = random.Random(seed)
    return [
        Member(
            folder=str(root / f"{number}-0"),
            seed=seed + number,
            learning_rate=10 ** draw.uniform(-4, -2),
            entropy_weight=10 ** draw.uniform(-3, -1),
        )
        for number in range(members)
    ]


def evolved(root: Path, environment: str, *, members: int, generations: int, steps: int, seed: int) -> list[Member]:
    """The population after all generations; each is in population.json, with its scores, as soon as it is trained."""
    root.mkdir(parents=True, exist_ok=True)
    state = root / STATE
    history = [[Member(**one) for one in each] for each in json.loads(state.read_text())] if state.exists() else []
    cores = len(sched_getaffinity(0))
    with ProcessPoolExecutor(min(members, cores), mp_context=get_context("spawn")) as processes:
        for generation in range(len(history), generations):
            population = (
                next_generation(history[-1], root, generation) if history else first_generation(root, members, seed)
            )
            train_each = partial(trained, environment=environment, steps=steps)
            history.append(list(processes.map(train_each, population)))
            state.write_text(json.dumps([[asdict(one) for one in each] for each in history], indent=1))
            print(f"generation {generation}")
            for one in sorted(history[-1], key=lambda member: member.score, reverse=True):
                settings = f"learning rate {one.learning_rate:.2g}, entropy weight {one.entropy_weight:.2g}"
                print(f"  {one.score:8.1f}  {one.folder}: {settings}{one.parent and f', from {one.parent}'}")
    return history[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Population-based training of an environment on this machine.")
    parser.add_argument("environment", help="as for rl-cluster --environment")
    parser.add_argument("--folder", type=Path, default=Path("runs/population"), help="one for each population")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--generations", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20_000, help="of a member in a generation")
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    best = max(evolved(given.pop("folder"), **given), key=lambda member: member.score)
    print(f"rl-eval --checkpoint {best.folder}")


if __name__ == "__main__":
    main()
