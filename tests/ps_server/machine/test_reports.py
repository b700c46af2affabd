"""A worker's report is counted once, and handed on to the records."""

from math import inf, nan

from ps_common.protocol.messages import Episode
from ps_common.protocol.status import mean_meters
from ps_server.state.effects import RecordReport, SaveCheckpoint
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


def test_a_repeated_report_is_handed_on_once(server: Transcript) -> None:
    server.report("a", 1, 7.0)
    server.report("a", 1, 7.0)
    assert [effect for effect in server.effects if isinstance(effect, RecordReport)] == []


def test_the_report_that_ends_a_run_is_handed_on_too() -> None:
    server = Transcript.seeded(budget={"until_return": 18.0})
    server.report("a", 1, *[18.0] * 100)
    assert len(only(RecordReport, server.effects).episodes) == 100


def test_a_checkpoint_is_kept_apart_every_so_many_episodes() -> None:
    server = Transcript.seeded(records={"checkpoint_every_episodes": 3, "keep_checkpoints": 2})
    server.push("a", 1)
    server.report("a", 1, 1.0, 2.0)
    assert server.after(1) == []
    server.report("a", 2, 3.0, 4.0)
    checkpoint = only(SaveCheckpoint, server.after(1))
    assert (checkpoint.milestone, checkpoint.keep) == (4, 2)
    server.machine.checkpoint_saved("here.safetensors")
    assert server.after(1) == []
    assert server.save().milestone is None


def test_a_checkpoint_made_for_its_time_counts_for_its_episodes_too() -> None:
    server = Transcript.seeded(records={"checkpoint_every_episodes": 3})
    server.push("a", 1)
    server.report("a", 1, 1.0, 2.0, 3.0)
    assert server.save_and_complete().milestone == 3
    assert server.after(1) == []
