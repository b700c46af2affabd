"""
The effect of each codec on learning: `python -m benchmarks.codecs [--seeds 3] [FLAGS of rl-cluster]`.

The same run with each gradient codec and seed, two workers: bytes per element, steps until `--until-return` or the end
of the budget, and the final score. Weights use the gradients' codec if it supports weights, otherwise float32. Without
flags: CartPole to a mean of 475, about ten minutes.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ps_common.protocol.codecs import CODECS

DEFAULT = ["--preset", "cartpole-a3c", "--until-return", "475"]
ELEMENTS = 100_000  # of the gradient whose encoded size is measured


def run(codec: str, seed: int, flags: Sequence[str]) -> tuple[int, float]:
    """Steps, and the mean return of the last 100 games."""
    weight_codec = codec if CODECS[codec].for_weights else "float32"
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        command = [str(Path(sys.executable).parent / "rl-cluster"), "--workers", "2", "--seed", str(seed)]
        command += ["--gradient-codec", codec, "--weight-codec", weight_codec]
        command += ["--run-dir", f"{folder}/run", "--json", str(summary), *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.loads(summary.read_text())
    print(f"{codec}, seed {seed}: {result['global_steps']:,} steps, {result['mean_return_100']:.1f}", flush=True)
    return result["global_steps"], result["mean_return_100"]


def main() -> None:
    parser = argparse.ArgumentParser(description="the effect of each codec on learning")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--codecs", nargs="+", default=list(CODECS), choices=list(CODECS))
    arguments, flags = parser.parse_known_args()
    seeds = range(arguments.seeds)
    ran = {(codec, seed): run(codec, seed, flags or DEFAULT) for seed in seeds for codec in arguments.codecs}
    table = Table("codec", "bytes an element", "steps of each seed", "median steps", "of float32", "scores")
    exact = statistics.median(ran[arguments.codecs[0], seed][0] for seed in seeds)
    for codec in arguments.codecs:
        steps = [ran[codec, seed][0] for seed in seeds]
        median = statistics.median(steps)
        size = len(CODECS[codec].encode(torch.randn(ELEMENTS))) / ELEMENTS
        scores = " ".join(f"{ran[codec, seed][1]:.1f}" for seed in seeds)
        each = " ".join(f"{number:,}" for number in steps)
        table.add_row(codec, f"{size:.2f}", each, f"{median:,.0f}", f"{median / exact:.2f}", scores)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
