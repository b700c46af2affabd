"""The page of results: a section for each part, replaced when its part is measured anew."""

import platform
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.peers.measuring import Figures
from benchmarks.peers.runners import CORES, Runner

HEAD = """# How does ps-rl compare with what one would pick instead?

"""
NETWORK = """On both sides the network of Mnih et al. 2015 with 1.69 M parameters learns Pong without sticky actions
from four frames of 84×84, with eight games, unrolls of 128 steps, four passes and batches of 256. The lines below the
table are what users type; here the peers' settings stand in programs of ours (`benchmarks/peers`)."""
NOTES = """Networks and settings differ, and so does what a step costs. `pong` plays with three of the six actions, all
others with all six. *Sticky* is the probability that a frame repeats the last action, which each program takes by a
flag of its own. A score is the mean of the last hundred training games; *18 after* is when that mean first was 18, of
Pong. Hopper-v5 has no frames; both sides learn it by SAC, hidden layers of 256 and 256, and sample their actions.
The first column has what users type; here the peers' settings stand in programs of ours (`benchmarks/peers`). RLlib,
PFRL and Sample Factory were not tried."""
SAME, RECOMMENDED = "With the same network and settings", "Each as its authors recommend"
ORDER = (SAME, RECOMMENDED)


def put(path: Path, title: str, body: str, *, head: str = HEAD, order: Sequence[str] = ORDER) -> None:
    """Put the section into the page, in the place of an older one. `head`: of a page that is not there yet."""
    old = path.read_text(encoding="utf-8") if path.exists() else head
    above, *sections = re.split(r"^## (.*)\n", old, flags=re.MULTILINE)
    found = dict(zip(sections[::2], sections[1::2], strict=True)) | {title: f"\n{body.strip()}\n"}
    text = "\n".join(f"## {name}\n{found[name].rstrip()}\n" for name in order if name in found)
    path.write_text(f"{above.rstrip()}\n\n{text}", encoding="utf-8")


def conditions(busy: Sequence[float], command: str) -> str:
    """The line above a table. `busy`: percent of the cores' time that others used, right before each run."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    machine = f"{model[1] if model else platform.machine()}, {CORES} cores, Python {platform.python_version()}"
    others = f"others used {min(busy):.0f} to {max(busy):.0f} % of the cores right before a run"
    return f"*{time.strftime('%Y-%m-%d')} · {machine} · {others} · `{command}`*"


def same_network(turns: Mapping[Runner, Sequence[Figures | None]], under: str) -> str:
    """
    The section of a comparison of speeds; `under` are its conditions. Ours is the first. Each has a figure for each
    turn, or None where it was not measured.
    """
    mine, *others = turns
    speeds = {runner: [found.steps_per_second if found else None for found in turns[runner]] for runner in turns}
    lines = ["| Pong | steps/s | of each turn | ps-rl makes … times as many (spread) | MiB (PSS) | first update, s |"]
    lines.append("|---|---|---|---|---|---|")
    medians: dict[Runner, tuple[float, float]] = {}
    for runner in turns:
        figures = [found for found in turns[runner] if found]
        if not figures:
            lines.append(f"| {runner.name} | not measured | | | | |")
            continue
        ratios = [my / its for my, its in zip(speeds[mine], speeds[runner], strict=True) if my and its]
        speed = statistics.median(found.steps_per_second for found in figures)
        ratio = ""
        if runner in others and ratios:
            medians[runner] = speed, statistics.median(ratios)
            ratio = f"{medians[runner][1]:.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        each = ", ".join(f"{found:,.0f}" if found else "–" for found in speeds[runner])
        memory = statistics.median(found.memory_mib for found in figures)
        first = statistics.median(found.first_update_seconds for found in figures)
        lines.append(f"| {runner.name} | {speed:,.0f} | {each} | {ratio} | {memory:,.0f} | {first:.1f} |")
    answer = "Not measured."
    if medians:
        quickest = max(medians, key=lambda runner: medians[runner])
        answer = f"ps-rl makes {medians[quickest][1]:.2f} times the steps/s of the quickest, {quickest.name}."
    typed = [f"- {runner.name}: `{runner.typed}`" for runner in turns]
    return "\n".join([f"**{answer}**\n{NETWORK}", "", under, "", *lines, "", *typed])


def as_recommended(found: Mapping[tuple[Runner, float | None], Figures | None], minutes: float, under: str) -> str:
    """The section of scores, with a row for each runner and probability of a sticky action: None for Hopper."""
    lines = [
        NOTES,
        "",
        under,
        "",
        f"| typed | sticky | steps/s | last 100 training games after {minutes:g} minutes | 18 after, minutes ",
    ]
    lines[-1] += "| MiB (PSS) | first update, s |"
    lines.append("|---|---|---|---|---|---|---|")
    for (runner, sticky), figures in found.items():
        head = f"| {runner.name}: `{runner.typed}` | {'Hopper' if sticky is None else f'{sticky:g}'} |"
        if figures is None:
            lines.append(f"{head} not measured | | | | |")
            continue
        score = "–" if figures.mean_return is None else f"{figures.mean_return:.1f}"
        score += "" if figures.games == 100 else f" ({figures.games} games)"
        solved = "–" if figures.solved_minutes is None or sticky is None else f"{figures.solved_minutes:.1f}"
        lines.append(
            f"{head} {figures.steps_per_second:,.0f} | {score} | {solved} "
            f"| {figures.memory_mib:,.0f} | {figures.first_update_seconds:.1f} |"
        )
    return "\n".join(lines)
