"""Blocks of the vector: each moves by its own rule, and what is said of none changes nothing."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from ps_common.errors import SchemaMismatch, SettingsError
from ps_common.protocol.lineage import Shard
from ps_common.protocol.messages import Opened, Push, Update
from ps_common.protocol.record import record_from_json, record_to_json
from ps_common.protocol.tensors import BlockSpec, Schema, TensorSpec
from ps_common.settings.run_spec import OPTIMIZER_SETTINGS
from ps_server.replication.standby_copy import Replay, run_of, state_of
from ps_server.state.guards import Denied, gradient_of
from ps_server.state.optimizers import Optimizer, settings_in
from ps_server.state.starting_weights import StartingWeights
from ps_server.state.training_run import TrainingRun
from tests.ps_server.transcripts import START, a_lineage, a_run

SIZES = {"policy.w": (40, 9), "policy.b": (9,), "log_temperature": (), "critics.w": (40, 13), "critics.b": (13,)}
OPTIMIZERS: list[dict[str, Any]] = [{"name": name} for name in OPTIMIZER_SETTINGS]
each_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda optimizer: str(optimizer["name"]))
ACTOR = BlockSpec(name="actor", learning_rate=0.25)
CRITIC = BlockSpec(name="critic")


def schema_of(blocks: dict[str, BlockSpec], *, shard: int = 1, shards: int = 1) -> Schema:
    """With the block of each tensor whose name begins so."""
    specs = [
        TensorSpec(name, shape, block=next((b for p, b in blocks.items() if name.startswith(p)), msgspec.UNSET))
        for name, shape in SIZES.items()
    ]
    return Schema([*specs, TensorSpec("seen", (2,), role="statistic")], shard=shard, shards=shards)


PLAIN = schema_of({})
TWO = schema_of({"policy": ACTOR, "critics": CRITIC})
Pushed = tuple[Tensor, tuple[str, ...]]


def pushes(count: int, *moved: tuple[str, ...], seed: int = 0) -> list[Pushed]:
    """Gradients that move these blocks in turn."""
    drawn = np.random.default_rng(seed)
    vectors = [torch.from_numpy(drawn.normal(size=PLAIN.size).astype(np.float32)) for _ in range(count)]
    return [(vector, moved[number % len(moved)] if moved else ()) for number, vector in enumerate(vectors)]


def begun(schema: Schema, optimizer: dict[str, Any], **sections: Any) -> TrainingRun:
    schedule = {"learning_rate": 0.1, "final_learning_rate": 0.01, "anneal_steps": 60}
    shard = Shard(number=schema.shard, addresses=tuple(f"127.0.0.1:{5000 + n}" for n in range(schema.shards)))
    lineage = a_lineage() if schema.shards == 1 else a_lineage(shard=shard)
    run = TrainingRun(a_run(optimizer=optimizer, schedule=schedule, **sections), lineage)
    run.seed(schema, torch.linspace(-1, 1, PLAIN.size)[schema.range])
    for worker in ("a", "b"):
        run.join(worker, Opened(incarnation=1, proof="p", key="", oldest=1, environments=8))
    return run


def push_of(run: TrainingRun, sequence: int, one: Pushed) -> tuple[str, Push, list[bytes]]:
    schema = run.weights.schema
    push = Push(
        request=1, sequence=sequence, computed_on=1, epoch=run.epoch, schema_hash=schema.hash, steps=3, blocks=one[1]
    )
    return "a", push, [one[0][schema.range].numpy().tobytes()]


def train(run: TrainingRun, given: Sequence[Pushed], *, first: int = 1) -> TrainingRun:
    for sequence, one in enumerate(given, start=first):
        (settled,) = run.settle([push_of(run, sequence, one)])
        assert settled.verdict == "applied", settled
    return run


def flat(run: TrainingRun) -> Tensor:
    return run.weights.flat.clone()


def part(vector: Tensor, beginning: str) -> Tensor:
    return torch.cat([view.reshape(-1) for name, view in PLAIN.views(vector).items() if name.startswith(beginning)])


@each_optimizer
def test_one_block_of_everything_is_no_block_bit_for_bit(optimizer: dict[str, Any]) -> None:
    whole, plain = schema_of({"": CRITIC}), train(begun(PLAIN, optimizer), pushes(30))
    assert whole.hash == PLAIN.hash
    for blocks in ((), ("critic",)):
        run = train(begun(whole, optimizer), pushes(30, blocks))
        assert torch.equal(flat(run), flat(plain))
        vectors = run.weights.vectors()
        assert all(torch.equal(vectors[name], kept) for name, kept in plain.weights.vectors().items())


@each_optimizer
def test_a_block_moves_as_in_a_run_with_its_learning_rate(optimizer: dict[str, Any]) -> None:
    run = train(begun(TWO, optimizer), pushes(30))
    alike = begun(PLAIN, optimizer)
    slower = msgspec.structs.replace(alike.spec.schedule, learning_rate=0.025, final_learning_rate=0.0025)
    alike.spec = msgspec.structs.replace(alike.spec, schedule=slower)
    train(alike, pushes(30))
    torch.testing.assert_close(part(flat(run), "policy"), part(flat(alike), "policy"), rtol=1e-5, atol=1e-6)
    plain = train(begun(PLAIN, optimizer), pushes(30))
    torch.testing.assert_close(part(flat(run), "critics"), part(flat(plain), "critics"), rtol=1e-6, atol=1e-6)


def test_a_block_has_the_optimizer_that_it_asks_for() -> None:
    block = BlockSpec(name="actor", optimizer={"beta1": 0.5, "epsilon": 1e-3})
    run = train(begun(schema_of({"policy": block}), {"name": "adam"}), pushes(20))
    alike = train(begun(PLAIN, {"name": "adam", "beta1": 0.5, "epsilon": 1e-3}), pushes(20))
    torch.testing.assert_close(part(flat(run), "policy"), part(flat(alike), "policy"), rtol=1e-6, atol=1e-6)
    for name, settings in (("sgd", {"beta1": 0.5}), ("adam", {"beta1": 2}), ("adam", {"gamma": 0.5})):
        bad = BlockSpec(name="actor", optimizer=settings)
        with pytest.raises(SettingsError, match=r"block 'actor'"):
            settings_in(a_run(optimizer={"name": name}).optimizer, bad)


@each_optimizer
def test_pushes_that_move_some_blocks_leave_the_others_as_if_there_had_been_none(optimizer: dict[str, Any]) -> None:
    """Nor do their moments and counts change, so each third push moves the actor as if it were one in a row."""
    every = pushes(30, ("critic",), ("critic",), ("critic", "actor"))
    constant = {"schedule": {"learning_rate": 0.1}}
    run = begun(TWO, optimizer)
    seldom = begun(TWO, optimizer)
    for one in (run, seldom):
        one.spec = a_run(optimizer=optimizer, **constant)
    train(run, every)
    train(seldom, [(vector, ()) for vector, moved in every if "actor" in moved])
    assert torch.equal(part(flat(run), "policy"), part(flat(seldom), "policy"))
    assert torch.equal(part(flat(run), "log_temperature"), part(torch.linspace(-1, 1, PLAIN.size), "log_temperature"))
    whole = begun(TWO, optimizer)
    whole.spec = run.spec
    train(whole, [(vector, ()) for vector, _ in every])
    assert torch.equal(part(flat(run), "critics"), part(flat(whole), "critics"))
    torch.testing.assert_close(part(flat(run), "seen"), part(flat(whole), "seen"))


def test_the_mean_of_pushes_is_over_those_that_move_a_block() -> None:
    (one, _), (other, _) = pushes(2)
    run = begun(TWO, {"name": "sgd"})
    both = [push_of(run, 1, (one, ("critic",))), ("b", *push_of(run, 1, (other, ("critic", "actor")))[1:])]
    run.settle(both)
    expected = torch.linspace(-1, 1, PLAIN.size)
    views, ones, others = (PLAIN.views(vector) for vector in (expected, one, other))
    for name, view in views.items():
        if name.startswith("policy"):
            view -= 0.1 * ACTOR.learning_rate * others[name]
        elif name.startswith("critics"):
            view -= 0.1 * (ones[name] + others[name]) / 2
        elif name == "seen":
            view += ones[name] + others[name]
    torch.testing.assert_close(flat(run), expected)


@each_optimizer
def test_a_restored_run_and_a_standby_go_on_with_the_same_weights(optimizer: dict[str, Any]) -> None:
    given = pushes(24, ("critic",), ("critic", "actor"), ())
    run = train(begun(TWO, optimizer), given[:11])
    record = record_from_json(record_to_json(run.record(now=START)))
    restored = TrainingRun.restored({name: v.clone() for name, v in run.weights.vectors().items()}, record, now=START)
    state, buffers = state_of(run, request=1, now=START)
    copy = run_of(msgspec.convert(msgspec.to_builtins(state), type(state)), buffers, now=START)
    replay = Replay(copy)
    for sequence, one in enumerate(given[11:], start=12):
        train(run, [one], first=sequence)
        train(restored, [one], first=sequence)
        worker, push, vector = push_of(run, sequence, one)
        update = Update(request=1, number=copy.log.position + 1, worker_id=worker, message=push)
        replay.apply(update, vector, now=START)
    for other in (restored, copy):
        vectors = other.weights.vectors()
        assert all(torch.equal(vectors[name], kept) for name, kept in run.weights.vectors().items())
        assert other.weights.schema.blocks == TWO.blocks


@each_optimizer
def test_shards_cut_blocks_and_move_them_as_one_server_does(optimizer: dict[str, Any]) -> None:
    given = pushes(20, ("critic",), ("critic", "actor"), ())
    whole = train(begun(TWO, optimizer), given)
    for shards in (2, 3, 7):
        parts = [
            train(begun(TWO.of_shard(number, shards), optimizer), given).weights for number in range(1, shards + 1)
        ]
        together = torch.cat([one.flat for one in parts])
        torch.testing.assert_close(together, flat(whole), rtol=1e-6, atol=1e-6)
        # What is no vector is the same at each, so that any shards make any others.
        counts = [{name: v for name, v in one.vectors().items() if v.dim() == 0} for one in parts]
        of_whole = {name: v for name, v in whole.weights.vectors().items() if v.dim() == 0}
        assert all(one == of_whole for one in counts)


def test_a_push_that_moves_an_unknown_block_is_discarded() -> None:
    run = begun(TWO, {"name": "sgd"})
    for name in ("other", "-"):
        with pytest.raises(Denied, match=name) as denied:
            gradient_of(push_of(run, 1, (torch.zeros(PLAIN.size), (name,)))[1], [], run.weights.schema)
        assert denied.value.code == "unknown_block"


def test_a_block_has_one_meaning_in_a_schema() -> None:
    other = BlockSpec(name="actor", learning_rate=2.0)
    for blocks in ({"policy": ACTOR, "critics": other}, {"policy": BlockSpec(name="-")}):
        with pytest.raises(SchemaMismatch, match="block"):
            schema_of(blocks)
    assert "block" in TWO.difference(PLAIN)
    assert "block" in PLAIN.difference(TWO)
    assert TWO == PLAIN, "the weights are the same, however they move"


@pytest.mark.parametrize("size", [1, 10])
def test_an_update_costs_one_kernel_for_each_range(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tensors and elements a block has."""
    calls: list[int] = []
    specs = [TensorSpec(f"w{n}", (size,), block=ACTOR if n < 5 * size else CRITIC) for n in range(10 * size)]
    for schema, expected in ((Schema(specs), 2), (Schema([TensorSpec(s.name, s.shape) for s in specs]), 1)):
        optimizer = Optimizer(a_run(optimizer={"name": "sgd"}).optimizer, schema)
        for _, _, rule in optimizer._rules:
            apply = rule.apply
            monkeypatch.setattr(rule, "apply", lambda *given, apply=apply: (calls.append(1), apply(*given)))
        calls.clear()
        optimizer.apply(torch.zeros(schema.size), torch.ones(schema.size), 0.1)
        assert len(calls) == expected


def test_a_run_with_blocks_starts_from_weights_without_and_the_other_way_round() -> None:
    weights, drawn = torch.linspace(0, 1, PLAIN.size), torch.zeros(PLAIN.size)
    for there, here in ((PLAIN, TWO), (TWO, PLAIN)):
        taken, _ = StartingWeights("run", "run", there, weights).for_run(here, drawn)
        assert torch.equal(taken, weights)
