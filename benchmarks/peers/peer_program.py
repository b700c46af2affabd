"""
The flags of the programs that train with a peer, and the rows that they leave. The fields are named as in metrics.jsonl
of a run of ps-rl.

The peers' own virtual environments run this file, so it imports nothing beside the standard library.
"""

import argparse
import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

GAMES = 100  # that a mean is of


def parse(argv: Sequence[str], *, algorithms: Sequence[str]) -> argparse.Namespace:
    """The flags of a program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithm", choices=algorithms)
    parser.add_argument("--sticky", type=float, default=0.0, help="probability that a frame repeats the last action")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=Path, required=True, help="file for the rows")
    return parser.parse_args(argv)


class Rows:
    """A row for each update, with the true scores of full games."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._returns: deque[float] = deque(maxlen=GAMES)
        self._games = self._updates = 0

    def add_game(self, episode_return: float) -> None:
        self._games += 1
        self._returns.append(episode_return)

    def add_update(self, steps: int) -> None:
        """`steps`: of all environments so far."""
        self._updates += 1
        row = {
            "time": time.time(),
            "global_steps": steps,
            "updates": self._updates,
            "episodes": self._games,
            "mean_return_100": sum(self._returns) / len(self._returns) if self._returns else None,
        }
        print(json.dumps(row), file=self._file)
