"""The target network θ⁻: a copy of θ for every I_target global steps, whatever the pushes count."""

from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from tests.ps_server.transcripts import EPOCH, Transcript, received, restored_run


def a_run_with(interval: int, name: str = "n_step_q") -> Transcript:
    return Transcript.seeded(algorithm={"name": name, "target_interval": interval, "unroll_length": 50})


@given(st.integers(1, 100), st.lists(st.integers(0, 250), max_size=40))
def test_the_target_is_refreshed_once_whenever_t_passes_a_multiple(interval: int, sizes: list[int]) -> None:
    """Each push takes 1 from each weight: a copy says of which version it is."""
    server = a_run_with(interval)
    store = server.run.weights
    counted = refreshes = 0
    for sequence, steps in enumerate(sizes, start=1):
        before = store.target_version
        server.push("a", sequence, steps=steps)
        passes = any((step + 1) % interval == 0 for step in range(counted, counted + steps))  # one step at a time
        counted += steps
        assert (store.target_version != before) == passes
        assert store.target_version == (store.version if passes else before)
        assert store.target.tolist() == [1.0 - store.target_version] * 3
        refreshes += passes
    assert refreshes <= counted // interval
    assert server.run.progress.global_steps == counted


def test_a_push_that_is_repeated_or_refused_does_not_refresh() -> None:
    server = a_run_with(10)
    server.push("a", 1, steps=9)
    server.push("a", 1, steps=9)
    assert server.push("a", 2, [float("nan")] * 3, steps=9).verdict == "discarded"
    assert server.run.weights.target_version == 1
    server.push("a", 3, steps=1)
    assert server.run.weights.target_version == 3


def test_without_a_target_the_weights_are_the_target_and_kept_once() -> None:
    for server in (Transcript.seeded(algorithm={"name": "a3c"}), a_run_with(0)):
        server.push("a", 1, steps=40)
        store = server.run.weights
        assert store.target_version == store.version == 2
        assert received(server.pull("a", target=True)) == store.flat.tolist() == [-1.0] * 3
        assert "target" not in server.save().vectors


def test_the_target_and_its_interval_survive_a_restart(tmp_path: Path) -> None:
    whole, stopped = a_run_with(50), a_run_with(50)
    for sequence in range(1, 6):
        for server in (whole, stopped):
            server.push("a", sequence, steps=17)  # T = 85, refreshed at 51
    checkpoint = stopped.save()
    write_checkpoint(tmp_path / "c.safetensors", checkpoint.vectors, checkpoint.record)
    vectors, record = read_checkpoint(tmp_path / "c.safetensors")
    run = restored_run(vectors, record, epoch=EPOCH + 1)
    resumed = Transcript(run, epoch=EPOCH + 1)
    resumed.hello("a")
    assert received(resumed.pull("a", target=True)) == received(whole.pull("a", target=True)) == [-3.0] * 3
    for sequence in range(6, 12):
        for server in (whole, resumed):
            server.push("a", sequence, steps=17)
        assert resumed.run.weights.target_version == whole.run.weights.target_version
        assert torch.equal(resumed.run.weights.target, whole.run.weights.target)
    assert whole.run.weights.target_version == 10, "T = 153"
