"""
What a codec costs in learning: `python -m benchmarks.codecs [--seeds 3] [FLAGS of rl-cluster]`.

The same run with each codec of gradients, seeds in turn, two workers: bytes of a gradient, the steps it took to reach
`--until-return` or the budget's end, and the score there. Weights travel as bfloat16 or float16 where gradients do.
Without flags: CartPole to a mean of 475, about ten minutes.
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

from common.protocol.codecs import CODECS

DEFAULT = ["--preset", "cartpole-a3c", "--until-return", "475"]
ELEMENTS = 100_000  # of the gradient whose bytes are told


def run(codec: str, seed: int, flags: Sequence[str]) -> tuple[int, float]:
    """Steps, and the mean return of the last 100 games."""
    weight_codec = codec if CODECS[codec].for_weights else "float32"
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        command = [str(Path(sys.executable).parent / "rl-cluster"), "--workers", "2", "--seed", str(seed)]
        command += ["--gradient-codec", codec, "--weight-codec", weight_codec]
        command += ["--run-dir", f"{folder}/run", "--json", str(summary), *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        told = json.loads(summary.read_text())
    print(f"{codec}, seed {seed}: {told['global_steps']:,} steps, {told['mean_return_100']:.1f}", flush=True)
    return told["global_steps"], told["mean_return_100"]


def main() -> None:
    parser = argparse.ArgumentParser(description="what each codec costs in learning")
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
