"""
How long a step of many remote games takes, with random actions. Start as many simulators, or a few more.

    python -m examples.remote_simulator.latency --games 64
"""

import argparse
import time

import numpy as np

from examples.remote_simulator.games import serve


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--port", type=int, default=5600)
    parser.add_argument("--steps", type=int, default=3000)
    arguments = parser.parse_args()

    games = serve(arguments.games, port=arguments.port)
    random, milliseconds = np.random.default_rng(0), []
    games.reset(seed=0)
    for _ in range(arguments.steps):
        begun = time.perf_counter()
        games.step(random.integers(2, size=arguments.games))
        milliseconds.append(1000 * (time.perf_counter() - begun))
    games.close()
    half, most = np.percentile(milliseconds, [50, 99])
    rate = arguments.games * 1000 / np.mean(milliseconds)
    print(f"{arguments.games} games: p50 {half:.2f} ms, p99 {most:.2f} ms, {rate:,.0f} steps/s")


if __name__ == "__main__":
    main()
