"""
What a newcomer types first: `rl-cluster --environment ID`, and no other setting of the run.

Run it as a module: SEEDS=3, MINUTES=5 (each run ends there at the latest), WORKERS=2, ENVIRONMENTS="CartPole-v1 …".
Each run must reach its goal: the mean of 100 games in a row, as they are played in training. rl-cluster shows its
progress. One line of figures for each run, and again all of them at the end.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.trials import figures

RL_CLUSTER = [sys.executable, "-m", "rl_cluster"]
# The thresholds of Gymnasium, where it has one. Of the others: MinAtar's game, and the share of what is possible.
GOALS = {
    "CartPole-v1": 475.0,
    "Acrobot-v1": -100.0,
    "LunarLander-v3": 200.0,
    "Pendulum-v1": -200.0,  # about -150 is possible
    "MountainCarContinuous-v0": 90.0,
    "InvertedPendulum-v5": 950.0,
    "MinAtar/Breakout-v1": 10.0,  # about what a DQN has after 5,000,000 steps (Young & Tian 2019)
    "benchmarks.trials.fruit:Fruit-v0": 8.0,  # 10.9 is possible
}


def learn(environment: str, seed: int, *, minutes: int, workers: int) -> tuple[str, bool]:
    """One run: its line of figures, and whether it has reached its goal."""
    goal = GOALS[environment]
    ends = ["--until-return", str(goal), "--max-minutes", str(minutes)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "summary.json"
        files = ["--run-dir", str(Path(folder) / "run"), "--json", str(path), "--no-web"]
        flags = ["--environment", environment, "--seed", str(seed), "--workers", str(workers), *ends, *files]
        subprocess.run([*RL_CLUSTER, *flags], check=True)
        summary = json.loads(path.read_bytes())
    best, steps = summary["best_mean_return_100"], summary["global_steps"]
    reached = best is not None and best >= goal
    line = (
        f"{environment} seed {seed}: {'reached' if reached else 'MISSED'} {goal:g}: best {best or float('nan'):.1f}, "
        f"{steps:,} steps, {summary['minutes']:.2f} minutes, {summary['steps_per_second']:,.0f} steps/s"
    )
    return line, reached


def main() -> int:
    sizes = figures.sizes(seeds=3, minutes=5, workers=2)
    lines, missed = [], 0
    for environment in os.environ.get("ENVIRONMENTS", "").split() or GOALS:
        for seed in range(1, sizes["seeds"] + 1):
            line, reached = learn(environment, seed, minutes=sizes["minutes"], workers=sizes["workers"])
            print(line, flush=True)
            lines.append(line)
            missed += not reached
    print(*lines, sep="\n")
    return figures.report({"runs": len(lines), "missed": missed}, {"a default that learns": missed > 0})


if __name__ == "__main__":
    sys.exit(main())
