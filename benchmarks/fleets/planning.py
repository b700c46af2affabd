"""
The needs of a fleet, by the simulator: for a number of cores, hosts and parameters, workers of one core or gangs, which
codec, how many shards, and how much work between two pushes.

`python -m benchmarks.fleets.planning` writes the tables of docs/PLANNING.md.

The servers are like the one that was measured, with a core for each of their threads. Workers, and members of gangs,
have a core each. Those of a host share a link as fast as a shard's.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from benchmarks.fleets.fleet_model import Fleet, Prediction, Visit, predicted
from benchmarks.fleets.service_times import CODECS, FLOAT32, SHARING, Fit, kept, together

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "PLANNING.md"
BYTES = {"float32": 4.0, "bfloat16": 2.0, "int8": 1 + 4 / 256, "topk": 1 / 8 + (1 + 4 / 256) / 4}  # of an element
SIZES = {"0.15 M": 150_000, "1.7 M": 1_700_000, "10 M": 10_000_000}
# Between two pushes of a worker with one core, or of a gang; that of pong-a3c is measured, larger networks take longer.
USUAL_SECONDS = {150_000: 0.1, 1_700_000: 0.25, 10_000_000: 1.0}
HOSTS = ((1, 16), (1, 64), (4, 64), (16, 64), (64, 64), (240, 64))  # hosts, and cores of each
SPLITS = (1, 2, 4, 8)  # gangs of a host, of which each has its part of the cores
SHARDS = (1, 2, 4, 8, 16)
LINKS = (1e9, 10e9)  # bits a second
HOP_SECONDS = 200e-6  # one way, in one building
WORKER_SHARE = 0.9  # of a worker's time that is to go into computing
MOST_BUSY = 0.85  # of the time of a station: beyond it queues grow
WORTH = 1.25  # more shards are taken where they are this much better than fewer
PUSHES_EACH, LEAST_PUSHES = 3, 5000  # of a simulated worker; of a simulated fleet
SIMULATED_SHARDS = 1  # all shards see the same pushes at the same times, and do the same


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Workers and servers, and what is between them."""

    workers: int
    parameters: int
    link: float  # bits a second
    members: int = 1  # processes of each worker, with a core each
    hosts: int = 0  # which the workers share evenly; 0: each has its own
    codecs: str = FLOAT32
    shards: int = 1
    compute_seconds: float = 0.0  # between two pushes of a worker


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The recommendation for one fleet."""

    deployment: Deployment
    prediction: Prediction


def fleet_of(fit: Fit, deployment: Deployment) -> Fleet:
    """Workers with a core each, and shards with one for each thread, on a network of such links."""
    codecs, shards = deployment.codecs, deployment.shards
    part = deployment.parameters / shards
    seconds = {thread: cost.of(parameters=part, codecs=codecs) for thread, cost in fit.costs.items()}
    up_bytes, down_bytes = (BYTES[name] * part for name in codecs.split("/"))
    up, down = 8 * up_bytes / deployment.link, 8 * down_bytes / deployment.link
    pieces = (up_bytes + down_bytes) / 8  # parameters of as many bytes
    waking = {thread: cost.waking * cost.wakings_of(pieces) for thread, cost in fit.costs.items()}
    io = seconds["server io"] / (up + down)  # its time goes with the bytes
    io_waking = (0.0, 0.0, waking["server io"] / 2)
    # The worker's own work, which it does for each shard, and the way.
    own = shards * sum(seconds[thread] + waking[thread] for thread in ("worker main", "worker io")) / 2
    way = Visit(seconds=(own + HOP_SECONDS + fit.wake_seconds,))
    return Fleet(
        workers=deployment.workers,
        compute_seconds=deployment.compute_seconds,
        to_shard=(
            way,
            Visit(
                stations=("worker link out", "link in", "server io"),
                seconds=(shards * up, up, io * up),
                waking=io_waking,
            ),
        ),
        update=Visit(
            stations=(SHARING,),
            seconds=(seconds[SHARING],),
            waking=(waking[SHARING],),
            shared=fit.costs[SHARING].shared_of(part),
        ),
        from_shard=(
            Visit(
                stations=("worker link in", "link out", "server io"),
                seconds=(shards * down, down, io * down),
                waking=io_waking,
            ),
            way,
        ),
        shards=SIMULATED_SHARDS,
        processes=deployment.hosts,
        members=deployment.members,
        gather_seconds=fit.gathering.of(members=deployment.members, parameters=deployment.parameters),
        together=together(deployment.workers),
    )


def best_plan(fit: Fit, hosts: int, cores: int, parameters: int, link: float, *, gangs: bool) -> Plan:
    """
    The fewest shards, then the least lossy codecs, then the largest gangs, with which workers may push as often as they
    usually do; where none do, those that are not worth replacing. Simulated.
    """
    chosen: Deployment | None = None  # with the least time between two pushes that it allows
    usual = USUAL_SECONDS[parameters]
    sizes = [cores // split for split in SPLITS] if gangs else [1]
    for shards, codecs, members in product(SHARDS, CODECS, sizes):
        workers = hosts * cores // members
        asked = Deployment(
            workers=workers,
            parameters=parameters,
            link=link,
            codecs=codecs,
            shards=shards,
            members=members,
            hosts=hosts,
        )
        least = _least_compute(fleet_of(fit, asked))
        if chosen is None or (
            chosen.compute_seconds > usual and (least <= usual or least * WORTH < chosen.compute_seconds)
        ):
            chosen = replace(asked, compute_seconds=least)
    assert chosen is not None
    chosen = replace(chosen, compute_seconds=max(chosen.compute_seconds, usual))
    while (found := _predicted(fit, chosen)).worker_share < WORKER_SHARE:
        chosen = replace(chosen, compute_seconds=1.1 * chosen.compute_seconds)
    return Plan(deployment=chosen, prediction=found)


def _predicted(fit: Fit, deployment: Deployment) -> Prediction:
    return predicted(fleet_of(fit, deployment), pushes=max(LEAST_PUSHES, PUSHES_EACH * deployment.workers))


def _least_compute(fleet: Fleet) -> float:
    """A lower bound of the seconds between pushes: no station is too busy, and a round trip takes its time."""
    busy: dict[str, float] = {}
    alone = fleet.gather_seconds
    for visit in (*fleet.to_shard, fleet.update, *fleet.from_shard):
        waking = visit.waking or (0.0,) * len(visit.seconds)
        alone += visit.shared + max(seconds + more for seconds, more in zip(visit.seconds, waking, strict=True))
        for name, seconds in zip(visit.stations, visit.seconds, strict=False):
            busy[name] = busy.get(name, 0.0) + seconds + visit.shared
    of_host = fleet.workers / (fleet.processes or fleet.workers)
    jobs = (seconds * (of_host if name.startswith("worker") else fleet.workers) for name, seconds in busy.items())
    waits = max(jobs) / MOST_BUSY - alone
    return max(waits, alone * WORKER_SHARE / (1 - WORKER_SHARE))


def write_plans(fit: Fit) -> None:
    """Simulate, print and write everything."""
    plans = [
        (
            hosts,
            cores,
            best_plan(fit, hosts, cores, parameters, link, gangs=False),
            best_plan(fit, hosts, cores, parameters, link, gangs=True),
        )
        for parameters in SIZES.values()
        for link in LINKS
        for hosts, cores in HOSTS
    ]
    lines = list(_table_of(plans))
    print(*lines, sep="\n")
    _replace("plan", lines)
    _replace("costs", _cost_table(fit))


def _table_of(plans: Iterable[tuple[int, int, Plan, Plan]]) -> Iterable[str]:
    yield (
        "|parameters|link|hosts×cores|workers of a core: use|a push each …|gangs: use|a push each …|"
        "round trip p50, p99|busiest|"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    names = {size: name for name, size in SIZES.items()}
    for hosts, cores, alone, gangs in plans:
        fleet, found = gangs.deployment, gangs.prediction
        trip = f"{1e3 * found.round_trip_p50:,.1f}, {1e3 * found.round_trip_p99:,.1f} ms"
        yield (
            f"|{names[fleet.parameters]}|{fleet.link / 1e9:g} Gbit/s|{hosts}×{cores}|{_use(alone)}|"
            f"{_seconds(_interval(alone))}|{_use(gangs)}|{_seconds(_interval(gangs))}|"
            f"{trip}|{found.busiest}, {found.busiest_share:.0%}|"
        )


def _use(plan: Plan) -> str:
    fleet = plan.deployment
    gradient, weights = fleet.codecs.split("/")
    codecs = gradient if gradient == weights else f"{gradient}, weights {weights}"
    servers = "1 server" if fleet.shards == 1 else f"{fleet.shards} shards"
    gangs = f"{fleet.workers:,} of {fleet.members}: " if fleet.members > 1 else ""
    return f"{gangs}{servers}, {codecs}"


def _interval(plan: Plan) -> float:
    """Seconds between two pushes of a worker or gang, with all that it waits for."""
    return plan.deployment.workers / plan.prediction.pushes_per_second


def _cost_table(fit: Fit) -> Iterable[str]:
    millions = " | ".join(CODECS)
    yield (
        "| thread | a push costs, µs | more that replies share which leave together, µs | more where it sleeps, µs | "
        f"and for a million parameters: {millions} |"
    )
    yield "|---|---|---|---|" + "---|" * len(CODECS)
    for thread, cost in fit.costs.items():
        each = cost.of(parameters=0, codecs=FLOAT32)
        million = (1e6 * (cost.of(parameters=1e6, codecs=codecs) - each) for codecs in CODECS)
        elements = " | ".join(f"{microseconds:,.0f}" for microseconds in million)
        asleep = [1e6 * cost.waking * cost.wakings_of(parameters) for parameters in (0, 1e6)]
        more = f"{asleep[0]:,.0f}, with a million parameters {asleep[1]:,.0f}"
        shares = [1e6 * cost.shared_of(parameters) for parameters in (0, 1e6)]
        shared = f"{shares[0]:,.0f}, with a million parameters {shares[1]:,.0f}" if any(shares) else "0"
        yield f"| {thread} | {1e6 * each:,.0f} | {shared} | {more} | {elements} |"


def _replace(name: str, lines: Iterable[str]) -> None:
    """Put a table into its place in the page."""
    text = PAGE.read_text()
    begin, end = f"<!-- {name}: begin, written by benchmarks.fleets.planning -->", f"<!-- {name}: end -->"
    table = "\n".join([begin, *lines, end])
    found, count = re.subn(re.escape(begin) + ".*?" + re.escape(end), lambda _: table, text, flags=re.DOTALL)
    assert count == 1, f"{PAGE} has no place for {name}"
    PAGE.write_text(found)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


if __name__ == "__main__":
    write_plans(kept())
