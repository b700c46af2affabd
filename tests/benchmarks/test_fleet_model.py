"""The simulator against what queueing theory knows."""

import pytest

from benchmarks.fleets.fleet_model import Fleet, Visit, predicted
from tests.rows import row


def fleet(workers: int, compute: float, *visits: Visit, **more: object) -> Fleet:
    """A server whose update takes 1 ms, unless `visits` say otherwise."""
    update = Visit(stations=("server",), seconds=(1e-3,))
    return Fleet(workers=workers, compute_seconds=compute, to_shard=visits, update=update, from_shard=(), **more)  # type: ignore[arg-type]


def test_one_worker_waits_for_its_own_round_trip_alone() -> None:
    found = predicted(fleet(1, 3e-3, Visit(seconds=(0.5e-3,)), uneven=0.0))
    assert found.pushes_per_second == pytest.approx(1 / 4.5e-3, rel=1e-3)
    assert found.round_trip_p50 == pytest.approx(1.5e-3)
    assert found.worker_share == pytest.approx(3 / 4.5, rel=1e-2)
    assert found.staleness_mean == 0


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_many_workers_queue_as_in_m_d_1(load: float) -> None:
    """Pollaczek and Khinchine: the mean wait of constant service S at load ρ is ρS / (2 (1 − ρ))."""
    workers = 1500
    found = predicted(fleet(workers, workers * 1e-3 / load, exponential=True), pushes=30_000)
    assert found.pushes_per_second == pytest.approx(load / 1e-3, rel=0.03)
    waiting = load * 1e-3 / (2 * (1 - load))
    assert found.mean_round_trip == pytest.approx(1e-3 + waiting, rel=0.08)


def test_throughput_obeys_the_saturation_law() -> None:
    """X(N) ≤ min(N / (Z + S), 1 / S), and nearly that when computing times are even (Denning and Buzen 1978)."""
    for workers in [1, 2, 4, 8, 32, 256]:
        with row(workers):
            found = predicted(fleet(workers, 7e-3))
            bound = min(workers / 8e-3, 1e3)
            assert 0.85 * bound <= found.pushes_per_second <= 1.02 * bound
            if workers == 256:
                assert (found.busiest, found.busiest_share) == ("server", pytest.approx(1.0, abs=0.01))


def test_a_push_is_as_late_as_there_are_other_workers_when_the_server_is_busy() -> None:
    assert predicted(fleet(100, 0.0)).staleness_mean == pytest.approx(99, abs=0.5)


def test_four_shards_with_a_quarter_of_the_work_take_four_times_as_many_pushes() -> None:
    quarter = Visit(stations=("server",), seconds=(0.25e-3,))
    sharded = Fleet(workers=200, compute_seconds=0.0, to_shard=(), update=quarter, from_shard=(), shards=4)
    assert predicted(sharded).pushes_per_second == pytest.approx(4000, rel=0.02)


def test_a_gang_has_computed_when_its_slowest_member_has_and_its_speaker_has_gathered() -> None:
    """The largest of n evenly distributed numbers of 0 to 1 is n / (n + 1) on average."""
    alone, gang = (
        predicted(fleet(1, 10e-3, members=members, gather_seconds=members * 1e-4), pushes=20_000) for members in (1, 15)
    )
    assert 1 / alone.pushes_per_second == pytest.approx(10e-3 + 0.1e-3 + 1e-3, rel=0.01)
    slowest = 10e-3 * (0.8 + 0.4 * 15 / 16)
    assert 1 / gang.pushes_per_second == pytest.approx(slowest + 1.5e-3 + 1e-3, rel=0.01)
    assert gang.worker_share == pytest.approx(slowest * gang.pushes_per_second, rel=0.01)
