"""
`make dear-update`: an update of SAC beside Stable-Baselines3's, and the push and pull beside its gradient.

The processes take turns, each with one thread. Hopper's sizes, two hidden layers of 256, batches of 256. A turn's
figure is the median of its calls; ratios are those of figures of the same turn.
"""

import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
import tyro

from benchmarks.command_loop import Measured, figures_of
from benchmarks.dear.our_update import PRESET
from benchmarks.dear.sections import COST, HEAD, ORDER
from benchmarks.peers.page import put
from benchmarks.servers import serving
from ps_common.settings.run_files import load_preset
from rl_agent.agent import planned_schema
from rl_agent.environments.make import make_environments

PAGE = Path("benchmarks/results/dear-goals.md")
OURS, THEIRS, GRADIENT = "ps-rl, an update", "Stable-Baselines3, an update", "ps-rl, a gradient"
TWO_THREADS = "Stable-Baselines3, an update with two threads"
MAPPED, WIRE = "a push and pull, mapped segments", "a push and pull, TCP"


@dataclass(frozen=True, kw_only=True)
class Flags:
    """An update of SAC, beside Stable-Baselines3's."""

    turns: int = 7
    seconds: float = 3.0
    """of a turn of each process"""
    venvs: Path = Path(".peers")


def main(flags: Flags) -> None:
    """Measure, and write the section of the page."""
    peer = str(flags.venvs / "sb3" / "bin" / "python")
    load = os.getloadavg()[0]
    run = load_preset(PRESET)
    environments = make_environments(run.environment, count=1)
    size = planned_schema(run, environments).size
    environments.close()
    server = [str(Path(sys.executable).with_name("ps-server")), "--preset", PRESET, "--max-steps", "0"]
    with (
        serving([*server, "--host", "127.0.0.1", "--port", "0"]) as (mapped, _),
        serving([*server, "--host", "127.0.0.1", "--port", "0"]) as (wire, _),
    ):
        found = _in_turn(flags, {
            OURS: Measured("benchmarks.dear.our_update", "update"),
            THEIRS: Measured("benchmarks.dear.sb3_update", "1", python=peer),
            TWO_THREADS: Measured("benchmarks.dear.sb3_update", "2", python=peer),
            GRADIENT: Measured("benchmarks.dear.our_update", "gradient"),
            MAPPED: Measured("benchmarks.push_pull", "ours", mapped, str(size)),
            WIRE: Measured("benchmarks.push_pull", "wire", wire, str(size)),
        })  # fmt: skip
    put(PAGE, COST, section(found, size=size, load=load), head=HEAD, order=ORDER)
    print(section(found, size=size, load=load))


def _in_turn(flags: Flags, processes: Mapping[str, Measured]) -> dict[str, list[float]]:
    """Milliseconds of each process, turn by turn."""
    found: dict[str, list[float]] = {name: [] for name in processes}
    try:
        for process in processes.values():
            process.wait()
        for _ in range(flags.turns):
            for name, process in processes.items():
                found[name].append(figures_of([process], flags.seconds)[0].p50 / 1000)
    finally:
        for process in processes.values():
            process.end()
    return found


def section(found: Mapping[str, Sequence[float]], *, size: int, load: float) -> str:
    """The figures as text."""
    against = {OURS: THEIRS, TWO_THREADS: THEIRS, MAPPED: GRADIENT, WIRE: GRADIENT}
    lines = [
        f"`make dear-update`, {time.strftime('%Y-%m-%d')}, {platform.machine()}, {psutil.cpu_count()} cores, load "
        f"{load:.1f} at the beginning. Hopper's sizes, hidden layers of 256 and 256 ({size:,} parameters), batches of "
        "256, one thread a process but in one row; the processes take turns. An update draws a batch, computes losses "
        "and gradients, moves the weights by Adam and the targets: `train(gradient_steps=1)` of Stable-Baselines3. A "
        "push and pull is the round trip of that vector to a server on this machine, with its Adam.",
        "",
        "| | ms, median | ms, each turn | of it |",
        "|---|---|---|---|",
    ]
    for name, turns in found.items():
        each = ", ".join(f"{one:.2f}" for one in turns)
        ratios = (
            [one / other for one, other in zip(turns, found[against[name]], strict=True)] if name in against else []
        )
        ratio = f"{median(ratios):.2f} of {against[name]} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""
        lines.append(f"| {name} | {median(turns):.2f} | {each} | {ratio} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(tyro.cli(Flags))
