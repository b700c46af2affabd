"""A server restored from a checkpoint equals the one that wrote it, bit for bit; its workers go on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.settings.run_spec import OPTIMIZER_SETTINGS
from ps_server.state.effects import SaveCheckpoint
from tests.ps_server.transcripts import EPOCH, START, Transcript, restored_run

OPTIMIZERS: list[dict[str, Any]] = [{"name": name} for name in OPTIMIZER_SETTINGS]
each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: str(optimizer["name"]))


def train(server: Transcript, updates: range, seed: int = 0) -> None:
    """Two workers push gradients that only the sequence and the seed decide, and report."""
    for sequence in updates:
        for worker in ("a", "b"):
            numbers = np.random.default_rng([seed, sequence, ord(worker)])
            server.push(worker, sequence, numbers.normal(size=3).tolist())
            if sequence % 3 == 0:
                server.report(worker, sequence, float(numbers.integers(-21, 22)))


def restored(
    checkpoint: SaveCheckpoint,
    folder: Path,
    *,
    epoch: int = EPOCH + 1,
    now: float = START,
    workers: Sequence[str] = ("a", "b"),
) -> Transcript:
    """A new server that resumes the run from a file. Its workers have sent HELLO again."""
    path = folder / "checkpoint.safetensors"
    write_checkpoint(path, checkpoint.vectors, checkpoint.record)
    vectors, record = read_checkpoint(path)
    server = Transcript(restored_run(vectors, record, epoch=epoch, now=now), epoch=epoch, now=now)
    for worker in workers:
        server.hello(worker)
    return server


def a_run_of(optimizer: dict[str, Any], **sections: Any) -> Transcript:
    schedule = {"learning_rate": 0.1, "final_learning_rate": 0.01, "anneal_steps": 1200}
    sections = {"algorithm": {"name": "n_step_q"}} | sections
    return Transcript.seeded(workers=("a", "b"), optimizer=optimizer, schedule=schedule, **sections)


@each_optimizer
def test_a_restored_run_equals_the_saved_one_bit_for_bit(optimizer: dict[str, Any], tmp_path: Path) -> None:
    original = a_run_of(optimizer)
    train(original, range(1, 70))
    original.run.weights.refresh_target()
    train(original, range(70, 75))
    checkpoint = original.save()
    again = restored(checkpoint, tmp_path)
    vectors = again.run.weights.vectors()
    assert vectors.keys() == checkpoint.vectors.keys()
    assert all(torch.equal(vectors[name], kept) for name, kept in checkpoint.vectors.items())
    record = again.run.record(now=START)
    accounts = checkpoint.record.ledger.items()
    ledger = {name: msgspec.structs.replace(account, durable=account.through) for name, account in accounts}
    assert record == msgspec.structs.replace(checkpoint.record, lineage=record.lineage, ledger=ledger)


@each_optimizer
def test_the_restored_run_trains_on_as_if_nothing_had_happened(optimizer: dict[str, Any], tmp_path: Path) -> None:
    """MXNet and ElasticDL's Go server do not save the slots of the optimizer (mxnet#15923)."""
    original = a_run_of(optimizer)
    train(original, range(1, 15))
    again = restored(original.save(), tmp_path)
    for server in (original, again):
        train(server, range(15, 30))
    mine, theirs = again.run.weights.vectors(), original.run.weights.vectors()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert again.run.learning_rate == original.run.learning_rate != 0.1
    assert again.run.progress.record(now=START) == original.run.progress.record(now=START)


def test_weights_of_the_former_epoch_are_not_those_of_the_same_version(server: Transcript, tmp_path: Path) -> None:
    """Version 2 was another vector before the crash."""
    checkpoint = server.save()
    server.push("a", 1, [5, 5, 5])
    again = restored(checkpoint, tmp_path)
    again.push("b", 1, [1, 2, 3])
    assert again.machine.version == server.machine.version
    pulled = again.pull("a", have=server.machine.version, epoch=EPOCH)
    assert pulled.snapshot is not None


def test_a_run_that_had_reached_its_target_is_over_as_soon_as_it_is_resumed() -> None:
    original = a_run_of({"name": "sgd"}, budget={"until_return": 18.0})
    original.report("a", 1, *[18.0] * 100)
    vectors, record = original.run.weights.vectors(), original.run.record(now=START)
    again = restored_run(vectors, record, epoch=EPOCH + 1)
    assert again.end_reason(now=START) == "mean return of the last 100 episodes reached 18"
