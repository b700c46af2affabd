"""
Planning past these machines: `python -m benchmarks.simulate` predicts fleets of up to 15,000 workers.

    python -m benchmarks.simulate --measure     measure this machine, fit, check, and write service_times.json (minutes)
    python -m benchmarks.simulate --check       the simulator against the measured runs of 1 to 64 workers
    python -m benchmarks.simulate --plan        the tables of docs/PLANNING.md

fleet_model.py is the simulator, measuring.py measures, service_times.py fits, planning.py asks what a fleet needs.
"""

import argparse
import os
import platform
import sys
from pathlib import Path

import msgspec

from benchmarks.fleets.fleet_model import Fleet, Prediction, Visit, predicted
from benchmarks.fleets.measuring import measured_turns
from benchmarks.fleets.planning import Checked, check_table, write_plans
from benchmarks.fleets.service_times import (
    FLOAT32,
    SHARING,
    Costs,
    Fit,
    Gathering,
    Measured,
    ServiceTimes,
    Turn,
    fitted_costs,
    medians,
    together,
)
from ps_common.protocol.tensors import ELEMENT_BYTES

KEPT = Path(__file__).parent / "fleets" / "service_times.json"
MOST_ERROR = 0.15
BAR_WORKERS = (1, 8, 64)
LONGEST_WAKE = 2e-3  # seconds; longer is no waking


def local_fleet(costs: Costs, workers: int, parameters: int, codecs: str, *, wake: float) -> Fleet:
    """The measured setting: a server on one core, and one process with all workers on another."""

    def visit(*threads: str, share: float = 1.0, aside: bool = False, shared: float = 0.0) -> Visit:
        found = [costs[thread] for thread in threads]
        return Visit(
            stations=threads,
            seconds=tuple(share * cost.of(parameters=parameters, codecs=codecs) for cost in found),
            waking=tuple(share * cost.waking * cost.wakings_of(parameters) for cost in found),
            aside=aside,
            shared=shared,
        )

    work = visit("worker main", share=0.5)  # before and after, without a pause
    # Gradient and weights have the same size here, so each takes half of a push's time of the IO threads.
    wire = visit("worker io", "server io", share=0.5)
    woken = Visit(seconds=(wake * costs["server io"].wakings_of(parameters) / 2,))
    return Fleet(
        workers=workers,
        compute_seconds=0.0,
        to_shard=(work, wire, woken),
        update=visit(SHARING, shared=costs[SHARING].shared_of(parameters)),
        from_shard=(wire, visit("server rest", "worker rest", aside=True), woken, work),
        together=together(workers),
        processes=1,
        one_core=True,
    )


def fitted_wake(costs: Costs, run: Measured) -> float:
    """The time of waking with which a run of one worker has the throughput that was measured."""
    low, high = 0.0, LONGEST_WAKE
    for _ in range(12):
        wake = (low + high) / 2
        found = predicted(local_fleet(costs, run.workers, run.parameters, run.codecs, wake=wake))
        low, high = (wake, high) if found.pushes_per_second > run.pushes_per_second else (low, wake)
    return (low + high) / 2


def measure() -> ServiceTimes:
    """Measure this machine."""
    load_average = os.getloadavg()[0]
    turns = measured_turns()
    cached = _cache_bytes() // ELEMENT_BYTES
    return ServiceTimes(
        machine=f"{platform.machine()}, {_processor()}, {os.cpu_count()} cores",
        cached_parameters=cached,
        load_average=load_average,
        turns=turns,
        fit=fit_of(turns, cached=cached),
    )


def fit_of(turns: list[Turn], *, cached: int) -> Fit:
    """The functions fitted to the medians of these turns."""
    runs = medians([turn.fitted for turn in turns])
    costs = fitted_costs(runs, cached=cached)
    few = next(run for run in runs if run.codecs == FLOAT32)  # the fewest workers, the smallest vector
    return Fit(costs=costs, wake_seconds=fitted_wake(costs, few), gathering=Gathering())


def check(times: ServiceTimes) -> list[Checked]:
    """Predict the checked runs of each turn from the fitted ones of that turn; print and return the errors."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for turn in times.turns:
        fit = fit_of([turn], cached=times.cached_parameters)
        for run in turn.checked:
            rate = of_local_run(fit, run.workers, run.parameters).pushes_per_second
            found.setdefault((run.parameters, run.workers), []).append((run.pushes_per_second, rate))
    checked = [Checked(size, workers, tuple(rates)) for (size, workers), rates in found.items()]
    print(*check_table(checked), sep="\n")
    print(f"largest error at {BAR_WORKERS} workers: {bar_error(checked):.1%} (limit {MOST_ERROR:.0%})")
    print(f"measured on {times.machine}, load average {times.load_average:.1f} before")
    return checked


def bar_error(checked: list[Checked]) -> float:
    """The largest relative error at 1, 8 and 64 workers."""
    return max(abs(one.error) for one in checked if one.workers in BAR_WORKERS)


def of_local_run(fit: Fit, workers: int, parameters: int) -> Prediction:
    """The simulator's prediction for synthetic workers on the machine that was measured."""
    return predicted(local_fleet(fit.costs, workers, parameters, FLOAT32, wake=fit.wake_seconds))


def _cache_bytes() -> int:
    """A core's own cache."""
    text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text()
    return 1024 * int(text.strip().removesuffix("K"))


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
    checked = check(times)
    if flags.plan or everything:
        write_plans(times, checked)
    return 1 if bar_error(checked) > MOST_ERROR else 0


if __name__ == "__main__":
    sys.exit(main())
