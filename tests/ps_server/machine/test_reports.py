"""A worker's report is counted once, and handed on to the records."""

from math import inf, nan

from ps_common.protocol.messages import Episode
from ps_common.protocol.status import mean_meters
from ps_server.state.effects import RecordReport
from tests.ps_server.transcripts import Transcript, only


def test_a_report_is_handed_on_with_where_the_run_is(server: Transcript) -> None:
    server.push("a", 1)
    server.after(60)
    server.report("b", 1, 7.0)
    server.report("b", 2, 3.0, 4.0, entropy=0.5)
    assert only(RecordReport, server.effects) == RecordReport(
        worker_id="b",
        global_steps=20,
        updates=1,
        minutes=1.0,
        first_episode=2,
        episodes=(Episode(3.0, 10), Episode(4.0, 10)),
        meters={"entropy": 0.5},
    )


def test_a_meter_that_is_no_finite_number_does_not_count_and_its_report_does(server: Transcript) -> None:
    server.report("b", 1, 7.0, entropy=0.5, loss=nan, policy_loss=-inf, value_loss=1e31, value=-1e30)
    assert only(RecordReport, server.effects).meters == {"entropy": 0.5, "value": -1e30}
    status = server.machine.status(now=server.now)
    assert (status.episodes, mean_meters(status)) == (1, {"entropy": 0.5, "value": -1e30})
