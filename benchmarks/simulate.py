"""
Planning past these machines: `python -m benchmarks.simulate` predicts fleets of up to 15,000 workers.

    python -m benchmarks.simulate --measure     measure this machine, fit, check, and write service_times.json (minutes)
    python -m benchmarks.simulate --check       the simulator against the measured runs of 1 to 64 workers
    python -m benchmarks.simulate --plan        the table and the pictures of docs/PLANNING.md

fleet_model.py is the simulator, service_times.py measures and fits, planning.py asks what a fleet needs.
"""

import argparse
import os
import platform
import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.fleets.fleet_model import Fleet, Prediction, Visit, predicted
from benchmarks.fleets.planning import write_plans
from benchmarks.fleets.service_times import (
    FLOAT32,
    Costs,
    Measured,
    ServiceTimes,
    fitted_costs,
    measured_runs,
)

KEPT = Path(__file__).parent / "fleets" / "service_times.json"
MOST_ERROR = 0.15
BAR_WORKERS = (1, 8, 64)
LONGEST_WAKE = 2e-3  # seconds; longer is no waking


def local_fleet(costs: Costs, workers: int, parameters: int, codecs: str, *, cores: int, wake: float) -> Fleet:
    """The measured setting: a server and one process with all workers, whose threads share the cores."""
    seconds = {thread: cost.of(workers=workers, parameters=parameters, codecs=codecs) for thread, cost in costs.items()}
    work = Visit(stations=("worker main",), seconds=(seconds["worker main"] / 2,))
    # Gradient and weights have the same size here, so each takes half of a push's time of the IO threads.
    wire = Visit(stations=("worker io", "server io"), seconds=(seconds["worker io"] / 2, seconds["server io"] / 2))
    woken = Visit(seconds=(wake,))
    return Fleet(
        workers=workers,
        compute_seconds=0.0,
        to_shard=(work, woken, wire, woken),
        update=Visit(stations=("server main",), seconds=(seconds["server main"],)),
        from_shard=(woken, wire, woken, work),
        processes=1,
        cores=cores,
    )


def fitted_wake(costs: Costs, run: Measured, *, cores: int) -> float:
    """The time of waking with which a run of few workers has the throughput that was measured."""
    low, high = 0.0, LONGEST_WAKE
    for _ in range(12):
        wake = (low + high) / 2
        found = predicted(local_fleet(costs, run.workers, run.parameters, run.codecs, cores=cores, wake=wake))
        low, high = (wake, high) if found.pushes_per_second > run.pushes_per_second else (low, wake)
    return (low + high) / 2


def measure() -> ServiceTimes:
    """Measure this machine."""
    load_average = os.getloadavg()[0]
    cores = os.cpu_count() or 1
    fitted, checked = measured_runs()
    costs = fitted_costs(fitted)
    few = next(run for run in fitted if run.codecs == FLOAT32)  # the fewest workers, the smallest vector
    return ServiceTimes(
        machine=f"{platform.machine()}, {_processor()}, {cores} cores",
        cores=cores,
        load_average=load_average,
        fitted=fitted,
        checked=checked,
        costs=costs,
        wake_seconds=fitted_wake(costs, few, cores=cores),
    )


def check(times: ServiceTimes) -> float:
    """Print predictions beside measurements; the largest relative error at 1, 8 and 64 workers."""
    table = Table("parameters", "workers", "measured, pushes/s", "predicted", "error", "busiest")
    errors = []
    for run in times.checked:
        found = of_local_run(times, run.workers, run.parameters)
        error = found.pushes_per_second / run.pushes_per_second - 1
        if run.workers in BAR_WORKERS:
            errors.append(abs(error))
        figures = (run.pushes_per_second, found.pushes_per_second)
        table.add_row(
            f"{run.parameters:,}",
            str(run.workers),
            *(f"{figure:,.0f}" for figure in figures),
            f"{error:+.1%}",
            found.busiest,
        )
    Console(width=110).print(table)
    print(f"largest error at {BAR_WORKERS} workers: {max(errors):.1%} (limit {MOST_ERROR:.0%})")
    print(f"measured on {times.machine}, load average {times.load_average:.1f} before")
    return max(errors)


def of_local_run(times: ServiceTimes, workers: int, parameters: int) -> Prediction:
    """The simulator's prediction for synthetic workers on the machine that was measured."""
    wake = times.wake_seconds
    fleet = local_fleet(times.costs, workers, parameters, FLOAT32, cores=times.cores, wake=wake)
    return predicted(fleet)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown processor"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("measure", "check", "plan"):
        parser.add_argument(f"--{flag}", action="store_true")
    flags = parser.parse_args()
    if flags.measure:
        KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(measure()), indent=1) + b"\n")
    times = msgspec.json.decode(KEPT.read_bytes(), type=ServiceTimes)
    everything = not (flags.measure or flags.check or flags.plan)
    error = check(times) if flags.measure or flags.check or everything else 0.0
    if flags.plan or everything:
        write_plans(times, lambda workers, parameters: of_local_run(times, workers, parameters))
    return 1 if error > MOST_ERROR else 0


if __name__ == "__main__":
    sys.exit(main())
