"""A checkpoint of any content is read or refused with a sentence; those of earlier formats are read."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor

from ps_common.errors import CheckpointError, DamagedCheckpoint, OtherFormat, PsRlError
from ps_common.protocol.messages import State
from ps_common.protocol.record import (
    FORMAT,
    KIND,
    MIGRATIONS,
    OLDEST,
    check_vectors,
    record_from_json,
    record_to_json,
)
from ps_common.protocol.tensors import TensorSpec
from ps_common.run_folder.checkpoint_file import _digest, read_checkpoint, write_checkpoint
from ps_common.run_folder.checkpoint_folder import first_verified
from ps_common.run_folder.trained import trained_as, trained_in
from ps_server.replication.standby_copy import run_of
from ps_server.state.training_run import TrainingRun
from tests.nested import Place, places_in, values, with_value, without
from tests.ps_server.transcripts import Transcript
from tests.rows import row

SAMPLES = Path(__file__).parent / "samples"


def a_run() -> TrainingRun:
    """A run that has something in every part of its record."""
    server = Transcript.seeded(workers=("a", "b"), optimizer={"name": "rmsprop"}, algorithm={"name": "n_step_q"})
    server.push("a", 1, [1, 2, 3], steps=20)
    server.push("b", 2, [1, 2, 3], steps=20)
    server.report("a", 1, 5.0)
    server.run.adjust({"schedule.learning_rate": 0.5}, by="me", checkpoint_seconds=30.0, now=server.now)
    return server.run


RUN = a_run()
VECTORS: dict[str, Tensor] = RUN.weights.vectors()
PLAIN: dict[str, Any] = json.loads(record_to_json(RUN.record(now=1000.0)))


def write(path: Path, text: str, vectors: dict[str, Tensor] = VECTORS, *, number: int = FORMAT) -> Path:
    """A file with a right checksum, whatever is in it."""
    metadata = {"format": f"ps-rl {KIND} {number}", "record": text, "xxh3_128": _digest(vectors, text.encode())}
    safetensors.torch.save_file(vectors, path, metadata)
    return path


PLACES = list(places_in(PLAIN))


def restored(text: str) -> TrainingRun:
    """As a server restores it. Raises PsRlError, and nothing else."""
    record = record_from_json(text.encode())
    check_vectors(VECTORS, record)
    return TrainingRun.restored(VECTORS, record, now=0.0)


def check_restored_or_refused(text: str) -> None:
    with contextlib.suppress(PsRlError):
        record = restored(text).record(now=0.0)
        assert record_from_json(record_to_json(record)) == record
        assert 0 <= record.progress.minutes < 2**53
        assert 1 <= record.target_version <= record.version


@given(st.sampled_from(PLACES), values, st.integers(OLDEST, FORMAT))
def test_a_record_with_any_field_replaced_is_restored_or_refused(at: Place, value: Any, number: int) -> None:
    changed = with_value(PLAIN, at, value)
    if isinstance(changed, dict) and at[:1] != ("format",):
        changed["format"] = number
    check_restored_or_refused(json.dumps(changed))


@pytest.mark.parametrize("number", range(OLDEST, FORMAT + 1))
def test_a_record_that_lacks_any_field_is_restored_or_refused(number: int) -> None:
    for at in PLACES[1:]:
        if at != ("format",):
            check_restored_or_refused(json.dumps(without(PLAIN, at) | {"format": number}))


def test_what_a_record_cannot_hold_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    for at, value, words in [
        (("ledger",), [], "Expected `object`, got `array`"),
        (("progress", "global_steps"), "40", "Expected `int`, got `str`"),
        (("progress", "global_steps"), 2**53, "progress.global_steps"),
        (("progress", "global_steps"), 10**12, "2 updates cannot count 1000000000000 steps"),
        (("progress", "updates"), -1, "progress.updates"),
        (("progress", "minutes"), float("nan"), "malformed"),
        (("progress", "minutes"), -1.0, "progress.minutes"),
        (("progress", "staleness_counts"), [0], "staleness_counts"),
        (("version",), -1, "version"),
        (("target_version",), 9, "its target is of version 9, and its weights of 3"),
        (("version",), True, "Expected `int`, got `bool`"),
        (("ledger", "a", "through"), -1, "through"),
        (("ledger", "a", "early"), [{}], "early"),
        (("schema", 0, "shape"), [-1], "axes"),
        (("lineage", "run_id"), "x", "run_id"),
        (("lineage", "shard", "number"), 2, "shard"),
        (("lineage", "shard", "addresses"), ["nowhere"], "HOST:PORT"),
        (("standby",), "x y", "HOST:PORT"),
        (("unheard",), 1, "unheard"),
    ]:
        with row(at, value, words):
            tmp_path = tmp_path_factory.mktemp("row")
            path = write(tmp_path / "1.safetensors", json.dumps(with_value(PLAIN, at, value)))
            with pytest.raises(DamagedCheckpoint, match=r"1\.safetensors: is damaged, because ") as raised:
                read_checkpoint(path)
            assert words in str(raised.value)


def test_vectors_that_are_not_those_of_the_record_are_damage(tmp_path_factory: pytest.TempPathFactory) -> None:
    for name, vector, words in [
        ("weights", torch.zeros(3, dtype=torch.bfloat16), "torch.bfloat16, not float32"),
        ("weights", torch.zeros(3, dtype=torch.bool), "torch.bool, not float32"),
        ("weights", torch.zeros(3, dtype=torch.int32), "torch.int32, not float32"),
        ("weights", torch.zeros(3, dtype=torch.complex64), "torch.complex64, not float32"),
        ("weights", torch.zeros(4), r"shape \[4\], not \[3\]"),
        ("weights", torch.zeros(1, 3), r"shape \[1, 3\], not \[3\]"),
        ("weights", torch.tensor([0.0, float("nan"), 0.0]), "weights hold NaN or Inf"),
        ("weights", None, "it has no weights"),
        ("target", torch.tensor([0.0, float("inf"), 0.0]), "target hold NaN or Inf"),
        ("optimizer.mean_square_plus_epsilon", torch.zeros(3, dtype=torch.int64), "torch.int64, not float32"),
        ("optimizer.mean_square_plus_epsilon", torch.zeros(2), r"shape \[2\]"),
        ("payload", torch.zeros(3), "no checkpoint has a tensor 'payload'"),
    ]:
        with row(name, vector, words):
            tmp_path = tmp_path_factory.mktemp("row")
            vectors = {key: one for key, one in {**VECTORS, name: vector}.items() if one is not None}
            path = write(tmp_path / "1.safetensors", json.dumps(PLAIN), vectors)
            with pytest.raises(DamagedCheckpoint, match=f"is damaged, because .*{words}"):
                read_checkpoint(path)
            with pytest.raises(DamagedCheckpoint, match=words):
                trained_in(path)


@pytest.mark.parametrize("slot", [None, torch.tensor(1.0)])
def test_a_checkpoint_without_a_slot_of_its_optimizer_is_not_resumed(slot: Tensor | None) -> None:
    """A single number would have been spread over the whole slot."""
    name = "optimizer.mean_square_plus_epsilon"
    vectors = {key: one for key, one in {**VECTORS, name: slot}.items() if one is not None}
    with pytest.raises(CheckpointError, match=rf"has no {name} \[3\]: it is of another optimizer"):
        TrainingRun.restored(vectors, RUN.record(now=0.0), now=0.0)


def test_a_checkpoint_of_a_later_format_is_named_and_nobody_goes_back_behind_it(tmp_path: Path) -> None:
    older = write(tmp_path / "older.safetensors", json.dumps(PLAIN))
    later = write(tmp_path / "later.safetensors", json.dumps({"format": 5, "all": "is different"}), number=5)
    said = r"later\.safetensors: is a checkpoint of format 5, of a later version of ps-rl; this one reads 3 to 4$"
    with pytest.raises(OtherFormat, match=said):
        first_verified([later, older], read_checkpoint, lambda *_: None)


def test_a_state_transfer_is_checked_like_a_checkpoint() -> None:
    for plain, words in [
        (PLAIN | {"version": -1}, "the primary's state is damaged, because .*version"),
        (PLAIN | {"format": 5}, "the primary's state is a checkpoint of format 5"),
    ]:
        record = json.dumps(plain).encode()
        specs = tuple(TensorSpec(name, tuple(vector.shape)) for name, vector in VECTORS.items())
        state = State(request=1, number=1, record_bytes=len(record), vectors=specs)
        with pytest.raises(CheckpointError, match=words):
            run_of(state, [record, *(vector.numpy().tobytes() for vector in VECTORS.values())], now=0.0)


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("checkpoint-*")), ids=lambda path: str(path.name))
def test_checkpoints_of_earlier_versions_are_read(sample: Path, tmp_path: Path) -> None:
    """They were written by those versions: two workers, eight pushes of 20 steps, two games, two adjustments."""
    vectors, record = read_checkpoint(sample)
    run = TrainingRun.restored(vectors, record, now=0.0)
    assert (run.progress.global_steps, run.progress.updates, run.progress.mean_return) == (160, 8, 1.0)
    assert [(account.through, account.unplayed) for account in run.ledger.accounts.values()] == [(4, 70)] * 2
    assert (run.adjustments.version, run.adjustments.paused, run.learning_rate) == (2, True, 0.005)
    assert run.first_shard == run.lineage.run_id == "0123456789abcdef"
    assert trained_as(sample).run.optimizer.__struct_config__.tag == "rmsprop"
    write_checkpoint(tmp_path / "again.safetensors", run.weights.vectors(), run.record(now=0.0))
    assert read_checkpoint(tmp_path / "again.safetensors")[1].progress == record.progress


def test_each_older_format_has_a_sample_and_a_way_to_the_next() -> None:
    found = set()
    for sample in SAMPLES.glob("checkpoint-*"):
        with safe_open(sample, framework="pt") as file:
            found.add(int(file.metadata()["format"].rpartition(" ")[2]))
    assert found == MIGRATIONS.keys() == set(range(OLDEST, FORMAT))
