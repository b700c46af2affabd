"""One shard as a server: what WELCOME says, which vectors it takes, which run and which other shards it belongs to."""

import pytest

from common.protocol import messages
from common.protocol.shards import Shard
from common.protocol.tensors import Schema, TensorSpec
from ps_server.state.training_run import TrainingRun
from tests.ps_server.transcripts import RUN_ID, START, Transcript, a_run, encoded

SCHEMA = Schema([TensorSpec("a", (4, 2)), TensorSpec("seen", (1,), role="statistic")])
ADDRESSES = ("one:1", "two:1,two:2")
OTHER_RUN = "fedcba9876543210"


def a_shard(number: int, run: bool = True) -> Transcript:
    """One of two shards; without `run` the first worker proposes it."""
    return Transcript(a_run() if run else None, shard=Shard(number=number, addresses=ADDRESSES))


def test_welcome_names_the_shard_the_addresses_of_all_and_the_run_of_the_first() -> None:
    first, second = a_shard(1), a_shard(2)
    welcome = first.hello("w")
    assert welcome.shard == Shard(number=1, addresses=ADDRESSES)
    assert welcome.first_shard == RUN_ID
    assert second.hello("w").first_shard == ""
    assert second.hello("w", first_shard="of one").first_shard == "of one"
    assert second.machine.status(now=START).shard == Shard(number=2, addresses=ADDRESSES)


def test_a_shard_takes_seeds_and_pushes_of_its_range_alone() -> None:
    second = a_shard(2)
    second.hello("w")
    whole = messages.Seed(request=90, schema=SCHEMA.specs)
    assert second.refusal("w", whole, encoded([0] * 9)).code == "wrong_size"
    second.seed("w", [0] * 5, SCHEMA)
    assert second.hello("w").schema == SCHEMA.specs
    push = second.push("w", 1, [1, 2, 3, 4, 5], schema_hash=SCHEMA.of_shard(2, 2).hash)
    assert push.verdict == "applied"
    assert second.weights() == [-1, -2, -3, -4, 5]
    assert second.push("w", 2, [1] * 5, schema_hash=SCHEMA.hash).code == "schema_mismatch"
    assert second.push("w", 3, [1] * 5, schema_hash=SCHEMA.of_shard(1, 2).hash).code == "schema_mismatch"


def test_workers_whose_first_shard_is_of_another_run_are_refused() -> None:
    second = a_shard(2)
    second.hello("w", first_shard=RUN_ID)
    refused = second.refusal("v", second.hello_of("v", first_shard=OTHER_RUN))
    assert refused.code == "other_run"
    assert f"shard 2/2 here belongs to run {RUN_ID}, and shard 1 of v to run {OTHER_RUN}" in refused.reason


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_the_run_that_a_worker_brings_from_shard_1_replaces_what_it_had_proposed_before(rate: float) -> None:
    second = a_shard(2, run=False)
    proposed = a_run(schedule={"learning_rate": rate}).to_dict()
    assert second.hello("w", proposed_run={}).run != proposed
    second.hello("v")
    assert second.hello("w", proposed_run=proposed, first_shard=RUN_ID).run == proposed
    another = a_run(schedule={"learning_rate": 3.0}).to_dict()
    assert second.hello("w", proposed_run=another, first_shard=RUN_ID).run == proposed
    second.seed("w", [0] * 5, SCHEMA)
    second.push("v", 1, [1] * 5, schema_hash=SCHEMA.of_shard(2, 2).hash)
    assert second.weights()[0] == -rate


def test_a_checkpoint_keeps_the_place_of_the_shard() -> None:
    second = a_shard(2)
    second.hello("w", first_shard=RUN_ID)
    second.seed("w", [1, 2, 3, 4, 5], SCHEMA)
    saved = second.save()
    run = TrainingRun.restored(saved.vectors, saved.record, now=START)
    assert run.shard == Shard(number=2, addresses=ADDRESSES)
    assert run.first_shard == RUN_ID
    assert run.weights.flat.tolist() == [1, 2, 3, 4, 5]
    assert run.weights.schema == SCHEMA.of_shard(2, 2)
