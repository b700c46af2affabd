"""What Prometheus reads of a run, over the lives of its servers."""

from ps_common.protocol.status import Status
from ps_web.prometheus import COUNTERS, GAUGES
from tests.ps_server.transcripts import EPOCH, Transcript, restored_run


def status_of(server: Transcript) -> Status:
    return server.machine.status(now=server.now)


def test_a_counter_of_a_resumed_run_goes_on_or_begins_at_zero() -> None:
    """Prometheus takes whatever falls for a counter that began at zero: one that fell a little would jump."""
    server = Transcript.seeded()
    for sequence in range(1, 4):
        server.push("a", sequence)
    server.report("a", 3, 5.0, 7.0)
    saved = server.save_and_complete()
    for sequence in (*range(4, 9), 8):
        server.push("a", sequence)
    server.report("a", 8, 9.0)
    before = status_of(server)
    resumed = Transcript(restored_run(saved.vectors, saved.record, epoch=EPOCH + 1))
    after = status_of(resumed)
    assert 0 < after.updates < before.updates
    for name, (_, value) in COUNTERS.items():
        assert value(after) == 0 or value(after) >= value(before), name
    assert {"ps_rl_environment_steps", "ps_rl_updates", "ps_rl_episodes", "ps_rl_training_seconds"} <= GAUGES.keys()


def test_the_age_of_the_newest_checkpoint_counts_from_its_content() -> None:
    server = Transcript.seeded()
    server.push("a", 1)
    age = GAUGES["ps_rl_checkpoint_age_seconds"][1]
    saved = server.save()
    server.after(3.0)
    server.machine.checkpoint_saved("here.safetensors")
    server.after(4.0)
    assert age(status_of(server)) == 7.0
    resumed = Transcript(restored_run(saved.vectors, saved.record, epoch=EPOCH + 1))
    assert age(status_of(resumed)) is None, "its clock does not know"
