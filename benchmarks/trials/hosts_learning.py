"""
CartPole on six virtual hosts: two with 10 Mbit/s and `--link slow`, one that loses packets, and one that is cut off for
some seconds; against the same workers on one host.

The learning rate is small and constant, on both sides alike: one host takes about a minute. With the preset's own rate
it takes six to twenty seconds, of which the cut and the chance of one seed would be the most part. Beside other work on
the same cores, minutes tell little; steps and the processor's time of all programs tell more.

Run it as root, as a module, with sizes in the environment: SEEDS=, GOAL= (the mean return), CUT_SECONDS=. It needs
iproute2 and iptables.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from benchmarks.trials import figures
from benchmarks.trials.hosts import Host, Hosts, inside, ip
from benchmarks.trials.learning import last_row_of
from ps_common.errors import ServerUnreachable
from tests.integration.processes import Programs, programs_in, status_of, wait_for

WORKERS = 6
SLOW, LOSSY, CUT = (0, 1), 2, 3  # numbers of workers
MEGABITS, LOSS = 10, 0.02
MOST_RATIO = 1.3
LONGEST_SECONDS = 1800.0
# Nobody learns before all are there: programs take seconds to start.
FLAGS = ("--preset", "cartpole", "--quorum", str(WORKERS), "--lease-seconds", "2", "--checkpoint-seconds", "2")
RATE = ("--learning-rate", "1.5e-4", "--final-learning-rate", "1.5e-4")


def slow_down(links: Hosts, host: Host) -> None:
    """10 Mbit/s in both directions."""
    tbf = ("root", "tbf", "rate", f"{MEGABITS}mbit", "burst", "32kbit", "latency", "100ms")
    for namespace, device in ((host.name, "eth0"), (links.bridge, host.link)):
        ip("netns", "exec", namespace, "tc", "qdisc", "replace", "dev", device, *tbf)


def lose(host: Host) -> None:
    """Some packets that arrive there are dropped."""
    drop = ("-m", "statistic", "--mode", "random", "--probability", str(LOSS), "-j", "DROP")
    ip("netns", "exec", host.name, "iptables", "-A", "INPUT", *drop)


@dataclass(frozen=True)
class Learned:
    """One run; its minutes begin when all workers are alive."""

    minutes: float
    steps: int
    staleness: float
    processor_seconds: float  # of all programs, from their starts to their ends
    back_seconds: float  # from the healing of the link until the worker there was alive again


def learn(programs: Programs, name: str, *, seed: int, goal: int, links: Hosts | None, cut_seconds: int) -> Learned:
    """One run to the score."""
    hosts = links.hosts[1:] if links else []  # the first is ours
    at: Any = {"host": hosts[0].address, "prefix": hosts[0].prefix} if links else {}
    flags = (*FLAGS, *RATE, "--until-return", str(goal), "--seed", str(seed))
    before = processor_seconds()
    server, endpoint = programs.start_server(*flags, run_dir=programs.folder / name, **at)
    for number in range(WORKERS):
        link = ["--link", "slow"] if links and number in SLOW else []
        prefix = hosts[1 + number].prefix if links else ()
        programs.start("rl-worker", "--server", endpoint, "--name", f"w{number}", *link, prefix=prefix)
    wait_for(lambda: _alive(endpoint) == WORKERS, program=server, within_seconds=LONGEST_SECONDS)
    began, back_seconds = time.monotonic(), 0.0
    if links:
        links.cut(hosts[1 + CUT])
        wait_for(lambda: _alive(endpoint) < WORKERS)
        threading.Event().wait(cut_seconds)
        links.heal(hosts[1 + CUT])
        healed = time.monotonic()
        wait_for(lambda: server.process.poll() is not None or _alive(endpoint) == WORKERS)
        back_seconds = time.monotonic() - healed
    wait_for(lambda: server.process.poll() is not None, within_seconds=LONGEST_SECONDS)
    minutes = (time.monotonic() - began) / 60
    assert server.wait() == 0, server.output[-2000:]
    for program in programs.started:
        program.wait()
    last = last_row_of(programs.folder / name)
    return Learned(minutes, last["global_steps"], last["staleness_mean"], processor_seconds() - before, back_seconds)


def processor_seconds() -> float:
    """The processor's time of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _alive(endpoint: str) -> int:
    """The number of living workers; 0 when the run is over."""
    try:
        return status_of(endpoint).workers_alive
    except ServerUnreachable:
        return 0


def trial(*, seeds: int, goal: int, cut_seconds: int) -> dict[str, float]:
    """Medians over the seeds, in minutes, and their ratio; and the longest time that the worker took to be back."""
    runs: dict[str, list[Learned]] = {"one_host": [], "six_hosts": []}
    for seed in range(1, seeds + 1):
        for name, found in runs.items():
            links = Hosts(2 + WORKERS) if name == "six_hosts" else None
            try:
                if links is not None:
                    for number in SLOW:
                        slow_down(links, links.hosts[2 + number])
                    lose(links.hosts[2 + LOSSY])
                here = inside(links.hosts[0]) if links is not None else nullcontext()
                with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs, here:
                    found.append(learn(programs, name, seed=seed, goal=goal, links=links, cut_seconds=cut_seconds))
            finally:
                if links is not None:
                    links.remove()
            print(f"seed {seed}, {name}: {found[-1]}", flush=True)
    minutes, steps, processor = (
        {name: statistics.median(of(run) for run in found) for name, found in runs.items()}
        for of in map(attrgetter, ("minutes", "steps", "processor_seconds"))
    )
    return minutes | {
        "ratio": minutes["six_hosts"] / minutes["one_host"],
        "steps_ratio": steps["six_hosts"] / steps["one_host"],
        "processor_ratio": processor["six_hosts"] / processor["one_host"],
        "back_seconds": max(run.back_seconds for run in runs["six_hosts"]),
    }


def main() -> int:
    try:
        found = trial(**figures.sizes(seeds=3, goal=475, cut_seconds=5))
    except subprocess.CalledProcessError as error:
        print(f"virtual hosts cannot be made here: {error.cmd}: {error.stderr.decode()}")
        return 2
    return figures.report(found, {f"it takes at most {MOST_RATIO} times as long": found["ratio"] > MOST_RATIO})


if __name__ == "__main__":
    sys.exit(main())
