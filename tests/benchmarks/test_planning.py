"""What a fleet needs, by a machine of known costs."""

import msgspec

from benchmarks.fleets.planning import best_plan
from benchmarks.fleets.service_times import CODECS, FLOAT32, SHARING, Cost, Fit, Gathering

THREADS = (SHARING, "server io", "server rest", "worker main", "worker io", "worker rest")
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


FIT = Fit(costs=KNOWN, wake_seconds=2e-5, gathering=GATHERING)


def test_a_plan_computes_for_nine_tenths_of_the_time_with_more_shards_or_rarer_pushes_for_more_workers() -> None:
    plans = [best_plan(FIT, hosts, 16, 150_000, 10e9, gangs=False) for hosts in (1, 16, 125)]
    assert min(plan.prediction.worker_share for plan in plans) >= 0.9
    few, more, many = (plan.deployment for plan in plans)
    assert few.shards < more.shards <= many.shards
    assert few.compute_seconds == more.compute_seconds < many.compute_seconds
    assert few.codecs == FLOAT32, "nothing is gained by a lossy codec"
    assert best_plan(FIT, 64, 1, 10_000_000, 1e9, gangs=False).deployment.shards > 1, "one link is too narrow"
    gangs = best_plan(FIT, 125, 16, 150_000, 10e9, gangs=True).deployment
    assert (gangs.members, gangs.workers, gangs.compute_seconds) == (16, 125, few.compute_seconds)
    assert gangs.shards < many.shards, "a sixteenth of the pushes"


def test_gangs_are_smaller_where_one_of_a_whole_host_would_gather_for_too_long() -> None:
    slow = msgspec.structs.replace(FIT, gathering=Gathering(each=5e-4, element=0.0, once=0.0))
    plan = best_plan(slow, 1, 64, 150_000, 10e9, gangs=True).deployment
    assert (plan.members, plan.workers) == (16, 4)
