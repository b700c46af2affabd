"""Fitting: costs that are known are found again."""

import random

import pytest

from benchmarks.fleets.planning import best_plan
from benchmarks.fleets.service_times import CODECS, FLOAT32, THREADS, Cost, Measured, ServiceTimes, fitted_costs
from benchmarks.simulate import local_fleet


def cost(times: int) -> Cost:
    """Each codec costs more than the one before."""
    element = {codecs: times * 1e-9 * more for more, codecs in enumerate(CODECS, start=1)}
    return Cost(alone=40e-6, each=times * 50e-6, element=element)


KNOWN = {thread: cost(times) for times, thread in enumerate(THREADS, start=1)}


def run(workers: int, parameters: int, codecs: str, *, wrong: float = 1.0) -> Measured:
    seconds = {
        thread: wrong * cost.of(workers=workers, parameters=parameters, codecs=codecs) for thread, cost in KNOWN.items()
    }
    return Measured(workers=workers, parameters=parameters, codecs=codecs, pushes_per_second=1.0, seconds=seconds)


def runs(wrong: float = 0.0) -> list[Measured]:
    drawn = random.Random(1)
    asked = [(count, size, FLOAT32) for count in (2, 32) for size in (2_000, 150_000, 700_000)]
    asked += [(count, 700_000, codecs) for count in (2, 32) for codecs in CODECS[1:]]
    return [run(*one, wrong=1 + drawn.uniform(-wrong, wrong)) for one in asked]


@pytest.mark.parametrize(("wrong", "within"), [(0.0, 1e-6), (0.05, 0.1)])
def test_costs_are_found_again_with_and_without_noise(wrong: float, within: float) -> None:
    found = fitted_costs(runs(wrong))
    for thread, cost in KNOWN.items():
        for workers, size, codecs in ((1, 20_000, FLOAT32), (64, 150_000, FLOAT32), (32, 1_700_000, CODECS[3])):
            asked = {"workers": workers, "parameters": size, "codecs": codecs}
            assert found[thread].of(**asked) == pytest.approx(cost.of(**asked), rel=within)


def test_no_cost_is_negative() -> None:
    cheaper = [run(2, 2_000, FLOAT32), run(32, 2_000, FLOAT32, wrong=3.0), *runs()[1:]]
    for cost in fitted_costs(cheaper).values():
        assert min(cost.alone, cost.each, *cost.element.values()) >= 0


def test_the_measured_setting_has_all_workers_in_one_process_and_shares_cores() -> None:
    fleet = local_fleet(KNOWN, 8, 150_000, FLOAT32, cores=2, wake=1e-5)
    assert (fleet.workers, fleet.processes, fleet.cores, fleet.compute_seconds) == (8, 1, 2, 0.0)
    spent = [
        seconds
        for visit in (*fleet.to_shard, fleet.update, *fleet.from_shard)
        if visit.stations
        for seconds in visit.seconds
    ]
    assert sum(spent) == pytest.approx(
        sum(cost.of(workers=8, parameters=150_000, codecs=FLOAT32) for cost in KNOWN.values())
    )


def test_a_plan_computes_for_nine_tenths_of_the_time_with_more_shards_or_rarer_pushes_for_more_workers() -> None:
    times = ServiceTimes(machine="", cores=2, load_average=0.0, fitted=[], checked=[], costs=KNOWN, wake_seconds=2e-5)
    few, more, many = (best_plan(times, workers, 150_000, 10e9) for workers in (16, 256, 2000))
    assert min(plan.prediction.worker_share for plan in (few, more, many)) >= 0.9
    assert few.shards < more.shards <= many.shards
    assert few.compute_seconds == more.compute_seconds < many.compute_seconds
    assert few.codecs == FLOAT32, "nothing is gained by a lossy codec"
    assert best_plan(times, 64, 10_000_000, 1e9).shards > 1, "the link of one server is too narrow"
