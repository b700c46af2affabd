"""A worker's report is counted once, and handed on to the records."""

from math import inf, nan

from ps_common.protocol.messages import Episode
from ps_common.protocol.status import mean_meters
from ps_server.state.effects import RecordReport
from ps_server.state.progress import LATE_SECONDS
from tests.ps_server.transcripts import Transcript, only


def test_a_report_is_handed_on_with_where_the_run_is(server: Transcript) -> None:
    server.push("a", 1)
    server.after(60)
    server.report("b", 1, 7.0)
    server.report("b", 2, 3.0, 4.0, entropy=0.5)
    assert only(RecordReport, server.effects) == RecordReport(
        worker_id="b",
        is_first=True,
        global_steps=20,
        updates=1,
        minutes=1.0,
        first_episode=2,
        episodes=(Episode(3.0, 10), Episode(4.0, 10)),
        meters={"entropy": 0.5},
        staleness=(),  # the first report has it
    )


def test_a_report_carries_the_staleness_of_each_update_since_the_last(server: Transcript) -> None:
    version = server.machine.version
    for sequence in (1, 2, 3):
        server.push("a", sequence, computed_on=version)
    server.report("b", 1)
    assert only(RecordReport, server.effects).staleness == (0, 1, 2)
    server.report("a", 1)
    assert only(RecordReport, server.effects).staleness == ()


def test_a_meter_that_is_no_sound_number_does_not_count_and_its_report_does(server: Transcript) -> None:
    server.report("b", 1, 7.0, entropy=0.5, loss=nan, policy_loss=-inf, value_loss=1e31, value=-1e30)
    assert only(RecordReport, server.effects).meters == {"entropy": 0.5, "value": -1e30}
    status = server.machine.status(now=server.now)
    assert (status.episodes, mean_meters(status)) == (1, {"entropy": 0.5, "value": -1e30})


def first_of(server: Transcript, worker: str, sequence: int, *, peer: str = "") -> bool:
    """Whether this report of a worker makes it the first: as it is told, and as records are."""
    told = server.report(worker, sequence, peer=peer).first
    assert only(RecordReport, server.effects).is_first == told
    return told


def test_what_one_worker_does_alone_falls_to_the_lowest_number_of_those_that_report() -> None:
    server = Transcript.seeded(workers=("a", "b", "c"))
    assert first_of(server, "b", 1), "a has told nothing yet"
    assert first_of(server, "a", 1)
    assert [first_of(server, worker, 2) for worker in ("c", "b", "a")] == [False, False, True]


def test_another_worker_takes_the_place_of_a_first_one_that_reports_no_more() -> None:
    """It was replaced by one of another name, it hangs, or its host is gone."""
    server = Transcript.seeded(workers=("a", "b", "c"))
    first_of(server, "a", 1)
    server.after(LATE_SECONDS)
    assert not first_of(server, "c", 1)
    server.after(0.1)
    assert first_of(server, "c", 2)
    assert first_of(server, "b", 1), "the lowest of those that are left"
    assert not first_of(server, "c", 3)
    server.hello("d")
    assert not first_of(server, "d", 1)
    server.goodbye("a")
    server.hello("a", process=2, peer="a again")
    assert first_of(server, "a", 1, peer="a again"), "it came back under its name"
