"""Fitting: costs that are known are found again; and what is asked of the simulator with them."""

import random
from pathlib import Path

import msgspec
import pytest

from benchmarks import simulate
from benchmarks.fleets.planning import best_plan
from benchmarks.fleets.service_times import (
    CODECS,
    FLOAT32,
    SHARING,
    THREADS,
    Cost,
    Fit,
    Gathering,
    Measured,
    ServiceTimes,
    Turn,
    fitted_costs,
    together,
)
from benchmarks.simulate import fit_of, of_local_run

CACHED = 2**18


def cost(times: int) -> Cost:
    """Each codec costs more than the one before."""
    element = {codecs: times * 1e-9 * more for more, codecs in enumerate(CODECS, start=1)}
    return Cost(
        each=times * 50e-6,
        element=element,
        beyond=times * 0.5e-9,
        cached=CACHED,
        waking=times * 5e-6,
        wakings=1.0,
        wakings_element=1e-5,
        shared=20e-6 if THREADS[times - 1] == SHARING else 0.0,
        shared_element=0.2e-9 if THREADS[times - 1] == SHARING else 0.0,
    )


GATHERING = Gathering(each=100e-6, element=0.5e-9, once=0.3e-9)
KNOWN = {thread: cost(times) for times, thread in enumerate(THREADS, start=1)}


def run(workers: int, parameters: int, codecs: str, *, wrong: float = 1.0, rate: float = 1.0) -> Measured:
    """Threads sleep the less the more workers there are."""
    sleeps = {thread: cost.wakings_of(parameters) / workers for thread, cost in KNOWN.items()}
    seconds = {
        thread: wrong
        * (
            cost.of(parameters=parameters, codecs=codecs)
            + cost.waking * sleeps[thread]
            + cost.shared_of(parameters) / together(workers)
        )
        for thread, cost in KNOWN.items()
    }
    return Measured(
        workers=workers,
        parameters=parameters,
        codecs=codecs,
        pushes_per_second=rate,
        seconds=seconds,
        sleeps=sleeps,
    )


def runs(wrong: float = 0.0) -> list[Measured]:
    drawn = random.Random(1)
    asked = [(count, size, FLOAT32) for count in (1, 2, 32) for size in (30_000, 150_000, 300_000, 700_000)]
    asked += [(count, 700_000, codecs) for count in (2, 32) for codecs in CODECS[1:]]
    return [run(*one, wrong=1 + drawn.uniform(-wrong, wrong)) for one in asked]


def turn(checked: list[Measured]) -> Turn:
    return Turn(fitted=runs(), checked=checked)


def times_of(turns: list[Turn]) -> ServiceTimes:
    fit = Fit(costs=KNOWN, wake_seconds=2e-5, gathering=GATHERING)
    return ServiceTimes(machine="", cached_parameters=CACHED, load_average=0.0, turns=turns, fit=fit)


@pytest.mark.parametrize(("wrong", "within"), [(0.0, 1e-6), (0.05, 0.15)])
def test_costs_are_found_again_with_and_without_noise(wrong: float, within: float) -> None:
    found = fitted_costs(runs(wrong), cached=CACHED)
    for thread, cost in KNOWN.items():
        for size, codecs in ((20_000, FLOAT32), (150_000, FLOAT32), (1_700_000, CODECS[3])):
            asked = {"parameters": size, "codecs": codecs}
            assert found[thread].of(**asked) == pytest.approx(cost.of(**asked), rel=within)
        assert found[thread].wakings_of(150_000) == pytest.approx(cost.wakings_of(150_000))


def test_a_plan_computes_for_nine_tenths_of_the_time_with_more_shards_or_rarer_pushes_for_more_workers() -> None:
    times = times_of([])
    plans = [best_plan(times, hosts, 16, 150_000, 10e9, gangs=False) for hosts in (1, 16, 125)]
    assert min(plan.prediction.worker_share for plan in plans) >= 0.9
    few, more, many = (plan.deployment for plan in plans)
    assert few.shards < more.shards <= many.shards
    assert few.compute_seconds == more.compute_seconds < many.compute_seconds
    assert few.codecs == FLOAT32, "nothing is gained by a lossy codec"
    assert best_plan(times, 64, 1, 10_000_000, 1e9, gangs=False).deployment.shards > 1, "one link is too narrow"
    gangs = best_plan(times, 125, 16, 150_000, 10e9, gangs=True).deployment
    assert (gangs.members, gangs.workers, gangs.compute_seconds) == (16, 125, few.compute_seconds)
    assert gangs.shards < many.shards, "a sixteenth of the pushes"


@pytest.mark.parametrize(("too_many", "status"), [([1.1], 0), ([1.2], 1), ([0.8], 1), ([1.0, 1.5, 1.1], 0)], ids=str)
def test_the_check_fails_when_the_median_error_of_the_turns_is_beyond_its_limit(
    too_many: list[float],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(simulate, "fitted_wake", lambda costs, run: 2e-5)  # dozens of simulations
    exact = of_local_run(fit_of([turn([])], cached=CACHED), 8, 20_000).pushes_per_second
    turns = [turn([run(8, 20_000, FLOAT32, rate=exact / times)]) for times in too_many]
    kept = tmp_path / "service_times.json"
    kept.write_bytes(msgspec.json.encode(times_of(turns)))
    monkeypatch.setattr(simulate, "KEPT", kept)
    monkeypatch.setattr("sys.argv", ["simulate", "--check"])
    assert simulate.main() == status
    assert "limit 15%" in capsys.readouterr().out
