"""
The needs of a fleet, by the simulator: for so many workers with so large a network, which codec, how many shards, and
how much work between two pushes. Writes the table of docs/PLANNING.md and its pictures.

The servers are like the one that was measured, with a core for each of their two threads. Workers have a core each, and
a link as fast as a shard's.
"""

import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

from benchmarks.fleets.fleet_model import Fleet, Prediction, Visit, predicted
from benchmarks.fleets.service_times import CODECS, FLOAT32, ServiceTimes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "PLANNING.md"
IMAGES = ROOT / "docs" / "images"
BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1 + 4 / 256, "topk": 1 / 8 + (1 + 4 / 256) / 4}  # of an element
SIZES = {"0.15 M": 150_000, "1.7 M": 1_700_000, "10 M": 10_000_000}
# Between two pushes of a worker with one core; that of pong-a3c is measured, larger networks take longer.
USUAL_SECONDS = {150_000: 0.1, 1_700_000: 0.25, 10_000_000: 1.0}
FLEETS = (16, 64, 256, 1_000, 4_000, 15_000)
SHARDS = (1, 2, 4, 8, 16)
LINKS = (1e9, 10e9)  # bits a second
HOP_SECONDS = 200e-6  # one way, in one building
WORKER_SHARE = 0.9  # of a worker's time that is to go into computing
MANY = 32  # workers at once, beyond which a push costs the same
MOST_BUSY = 0.85  # of the time of a station: beyond it queues grow
WORTH = 1.25  # more shards are taken where they are this much better than fewer
PUSHES_EACH, LEAST_PUSHES = 3, 5000  # of a simulated worker; of a simulated fleet
SIMULATED_SHARDS = 1  # all shards see the same pushes at the same times, and do the same
COMPUTE_SECONDS = (0.1, 0.5, 2.0, 10.0)  # of the pictures


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The recommendation for one fleet."""

    workers: int
    parameters: int
    link: float
    codecs: str
    shards: int
    compute_seconds: float
    prediction: Prediction


def fleet_of(
    times: ServiceTimes, workers: int, parameters: int, *, codecs: str, shards: int, link: float, compute_seconds: float
) -> Fleet:
    """Workers with a core each, and shards with two, on a network of such links."""
    part = parameters / shards
    seconds = {thread: cost.of(workers=MANY, parameters=part, codecs=codecs) for thread, cost in times.costs.items()}
    up, down = (8 * BYTES[name] * part / link for name in codecs.split("/"))
    io = seconds["server io"] / (up + down)  # its time goes with the bytes
    # The worker's own work, which it does for each shard, and the way.
    own = shards * (seconds["worker main"] + seconds["worker io"]) / 2
    way = Visit(seconds=(own + HOP_SECONDS + times.wake_seconds,))
    return Fleet(
        workers=workers,
        compute_seconds=compute_seconds,
        to_shard=(way, Visit(stations=("link in", "server io"), seconds=(up, io * up))),
        update=Visit(stations=("server main",), seconds=(seconds["server main"],)),
        from_shard=(Visit(stations=("link out", "server io"), seconds=(down, io * down)), way),
        shards=SIMULATED_SHARDS,
    )


def best_plan(times: ServiceTimes, workers: int, parameters: int, link: float) -> Plan:
    """
    The fewest shards, then the least lossy codecs, with which workers may push as often as they usually do; where none
    do, those that are not worth replacing. Simulated.
    """
    chosen: tuple[float, str, int] | None = None
    usual = USUAL_SECONDS[parameters]
    for shards in SHARDS:
        for codecs in CODECS:
            least = _least_compute(times, workers, parameters, codecs=codecs, shards=shards, link=link)
            if chosen is None or (chosen[0] > usual and (least <= usual or least * WORTH < chosen[0])):
                chosen = least, codecs, shards
    assert chosen is not None
    least, codecs, shards = chosen
    compute = max(least, usual)
    while True:
        fleet = fleet_of(times, workers, parameters, codecs=codecs, shards=shards, link=link, compute_seconds=compute)
        found = predicted(fleet, pushes=max(LEAST_PUSHES, PUSHES_EACH * workers))
        if found.worker_share >= WORKER_SHARE:
            break
        compute *= 1.1
    return Plan(
        workers=workers,
        parameters=parameters,
        link=link,
        codecs=codecs,
        shards=shards,
        compute_seconds=compute,
        prediction=found,
    )


def _least_compute(
    times: ServiceTimes, workers: int, parameters: int, *, codecs: str, shards: int, link: float
) -> float:
    """A lower bound of the seconds between pushes: no station is too busy, and a round trip takes its time."""
    fleet = fleet_of(times, workers, parameters, codecs=codecs, shards=shards, link=link, compute_seconds=0.0)
    busy: dict[str, float] = {}
    alone = 0.0
    for visit in (*fleet.to_shard, fleet.update, *fleet.from_shard):
        alone += max(visit.seconds)
        for name, seconds in zip(visit.stations, visit.seconds, strict=False):
            busy[name] = busy.get(name, 0.0) + seconds
    waits = workers * max(busy.values()) / MOST_BUSY - alone
    return max(waits, alone * WORKER_SHARE / (1 - WORKER_SHARE))


def write_plans(times: ServiceTimes, of_local_run: Callable[[int, int], Prediction]) -> None:
    """Simulate, print and write everything."""
    pyplot.rcParams["svg.hashsalt"] = "ps-rl"  # the same picture has the same bytes
    _plot_check(times, of_local_run)
    _plot_fleets(times)
    plans = [
        best_plan(times, workers, parameters, link)
        for parameters in SIZES.values()
        for link in LINKS
        for workers in FLEETS
    ]
    lines = list(_table_of(plans))
    table = Table(*(cell.strip() for cell in lines[0].strip("|").split("|")))
    for line in lines[2:]:
        table.add_row(*(cell.strip() for cell in line.strip("|").split("|")))
    Console(width=140).print(table)
    _replace("plan", lines)
    _replace("check", _check_table(times, of_local_run))
    _replace("costs", _cost_table(times))


def _table_of(plans: Iterable[Plan]) -> Iterable[str]:
    yield "| parameters | link | workers | use | a push each … | pushes/s | round trip p50, p99 | busiest |"
    yield "|---|---|---|---|---|---|---|---|"
    names = {size: name for name, size in SIZES.items()}
    for plan in plans:
        found = plan.prediction
        gradient, weights = plan.codecs.split("/")
        codecs = gradient if gradient == weights else f"{gradient}, weights {weights}"
        servers = "1 server" if plan.shards == 1 else f"{plan.shards} shards"
        trip = f"{1e3 * found.round_trip_p50:,.1f}, {1e3 * found.round_trip_p99:,.1f} ms"
        yield (
            f"| {names[plan.parameters]} | {plan.link / 1e9:g} Gbit/s | {plan.workers:,} | {servers}, {codecs} | "
            f"{_seconds(plan.compute_seconds)} | {found.pushes_per_second:,.0f} | {trip} | "
            f"{found.busiest}, {found.busiest_share:.0%} |"
        )


def _check_table(times: ServiceTimes, of_local_run: Callable[[int, int], Prediction]) -> Iterable[str]:
    yield "| parameters | workers | measured, pushes/s | predicted | error |"
    yield "|---|---|---|---|---|"
    errors = []
    for run in times.checked:
        found = of_local_run(run.workers, run.parameters).pushes_per_second
        error = found / run.pushes_per_second - 1
        errors.append(abs(error))
        yield f"| {run.parameters:,} | {run.workers} | {run.pushes_per_second:,.0f} | {found:,.0f} | {error:+.1%} |"
    yield ""
    middle, most = statistics.median(errors), max(errors)
    yield f"The largest error is {most:.0%}, the median {middle:.0%}. Measured on {times.machine}, at a load average of"
    yield f"{times.load_average:.1f} from other programs, which lower what is measured where it is more than 0."


def _cost_table(times: ServiceTimes) -> Iterable[str]:
    yield "| thread | a push costs, µs | and for a million parameters: " + " | ".join(CODECS) + " |"
    yield "|---|---|" + "---|" * len(CODECS)
    for thread, cost in times.costs.items():
        elements = " | ".join(f"{1e12 * cost.element[codecs]:,.0f}" for codecs in CODECS)
        yield f"| {thread} | {1e6 * (cost.each + cost.alone / MANY):,.0f} | {elements} |"


def _replace(name: str, lines: Iterable[str]) -> None:
    """Put a table into its place in the page."""
    text = PAGE.read_text()
    begin, end = f"<!-- {name}: begin, written by benchmarks.simulate -->", f"<!-- {name}: end -->"
    table = "\n".join([begin, *lines, end])
    found, count = re.subn(re.escape(begin) + ".*?" + re.escape(end), lambda _: table, text, flags=re.DOTALL)
    assert count == 1, f"{PAGE} has no place for {name}"
    PAGE.write_text(found)


def _plot_check(times: ServiceTimes, of_local_run: Callable[[int, int], Prediction]) -> None:
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for size in sorted({run.parameters for run in times.checked}):
        counts = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
        rates = [of_local_run(count, size).pushes_per_second for count in counts]
        (line,) = axes.plot(counts, rates, label=f"{size:,} parameters, predicted")
        runs = [run for run in times.checked if run.parameters == size]
        axes.plot(
            [run.workers for run in runs],
            [run.pushes_per_second for run in runs],
            "o",
            color=line.get_color(),
            label="measured",
        )
    axes.set(xscale="log", xlabel="workers", ylabel="pushes a second", ylim=(0, None))
    axes.set_title(f"One server and its workers on {times.cores} cores, float32 over TCP")
    axes.legend()
    _save(figure, "planning-check")


def _plot_fleets(times: ServiceTimes) -> None:
    figure, rows = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axes, (shards, codecs) in zip(rows, ((1, FLOAT32), (8, FLOAT32)), strict=True):
        for compute in COMPUTE_SECONDS:
            shares = []
            for workers in FLEETS:
                fleet = fleet_of(
                    times, workers, SIZES["1.7 M"], codecs=codecs, shards=shards, link=10e9, compute_seconds=compute
                )
                shares.append(predicted(fleet, pushes=max(LEAST_PUSHES, PUSHES_EACH * workers)).worker_share)
            axes.plot(FLEETS, shares, marker="o", label=f"a push each {compute:g} s")
        axes.set(
            xscale="log",
            xlabel="workers",
            title=f"{'1 server' if shards == 1 else f'{shards} shards'}, 1.7 M parameters, {codecs}",
        )
        axes.axhline(WORKER_SHARE, color="gray", linestyle=":")
    rows[0].set_ylabel("share of a worker's time in which it computes")
    rows[0].legend()
    _save(figure, "planning-fleets")


def _save(figure: "pyplot.Figure", name: str) -> None:
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"
