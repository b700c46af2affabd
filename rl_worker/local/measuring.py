"""
`--envs auto` and `--threads auto`: how many environments and threads make a worker of this machine fast, by trying.

A trial is what a worker does without a server: unrolls, losses, gradients. The smallest number that comes within a
tenth of the fastest is taken: more environments make larger batches and fewer updates, and more threads take the cores
of other workers.
"""

import time
from collections.abc import Callable, Sequence

import torch

from common.settings.run_spec import RunSpec
from rl_worker.agent import build_agent, collector_for
from rl_worker.environments.make import closing, make_environments
from rl_worker.networks.flat_network import FlatNetwork

TRIED_ENVS = (1, 2, 4, 8, 16, 32, 64, 128)
TRIAL_SECONDS = 0.7  # of one number, after the first unroll
MOST_SECONDS = 12.0  # of all trials: no trial begins later
ENOUGH = 0.9  # of the fastest

MEASURED_FLAGS = {"--envs", "--threads"}

Speeds = dict[int, float]  # environment steps a second, by the number that was tried


def measured_flags(
    run: RunSpec, *, envs: bool, threads: int, device: torch.device, say: Callable[[str], None]
) -> list[str]:
    """The flags that measuring chooses: --envs if `envs`, --threads if up to `threads` above 0 may be taken."""
    flags = []
    count = run.environment.envs
    if envs:
        speeds = measure_envs(run, device=device)
        say(in_words(speeds, "environments"))
        count = chosen(speeds)
        flags += ["--envs", str(count)]
    if threads:
        speeds = measure_threads(run, count, most=threads, device=device)
        say(in_words(speeds, "threads"))
        flags += ["--threads", str(chosen(speeds))]
    return flags


def measure_envs(run: RunSpec, *, device: torch.device, clock: Callable[[], float] = time.monotonic) -> Speeds:
    """Ends early when twice as many environments, twice in a row, are no faster."""
    return tried(TRIED_ENVS, lambda count: steps_per_second(run, count, device=device, clock=clock), clock)


def measure_threads(
    run: RunSpec, count: int, *, most: int, device: torch.device, clock: Callable[[], float] = time.monotonic
) -> Speeds:
    """Of 1, 2, 4, … threads, up to `most`."""

    def speed(threads: int) -> float:
        torch.set_num_threads(threads)
        return steps_per_second(run, count, device=device, clock=clock)

    before = torch.get_num_threads()
    try:
        return tried([2**power for power in range(most.bit_length())], speed, clock)
    finally:
        torch.set_num_threads(before)


def tried(numbers: Sequence[int], speed: Callable[[int], float], clock: Callable[[], float]) -> Speeds:
    """The speed of each number, until time is up or two in a row are no faster than those before."""
    speeds: Speeds = {}
    end = clock() + MOST_SECONDS
    slower = 0
    for number in numbers:
        fastest = max(speeds.values(), default=0.0)
        speeds[number] = speed(number)
        slower = 0 if speeds[number] > fastest else slower + 1
        if slower == 2 or clock() > end:
            break
    return speeds


def chosen(speeds: Speeds) -> int:
    """The smallest number that is fast enough."""
    fastest = max(speeds.values())
    return min(number for number, speed in speeds.items() if speed >= ENOUGH * fastest)


def in_words(speeds: Speeds, what: str) -> str:
    """One line for the log."""
    each = ", ".join(f"{number}: {speed:,.0f}" for number, speed in speeds.items())
    return f"measured steps per second by {what}: {each}; {what} {chosen(speeds)}"


def steps_per_second(run: RunSpec, count: int, *, device: torch.device, clock: Callable[[], float]) -> float:
    """Of a worker with so many environments."""
    with closing(make_environments(run.environment, count=count, with_screen=False)) as environments:
        algorithm = build_agent(run, environments, device=device, seed=0)
        network = FlatNetwork(algorithm.network)
        collector = collector_for(algorithm, environments, seed=0)
        began, steps = clock(), -1
        while steps <= 0 or clock() - began < TRIAL_SECONDS:
            if steps == 0:
                began = clock()  # the first unroll also loads and allocates
            trajectory = collector.collect()
            for batch in algorithm.batches(trajectory):
                with network.learning():
                    network.gradient_of(algorithm.loss(batch).total, clip=algorithm.gradient_clip)
            steps = 0 if steps < 0 else steps + trajectory.steps
        return steps / max(clock() - began, 1e-9)
