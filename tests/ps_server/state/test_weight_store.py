"""One vector and its snapshots: few copies, immutable, in pooled buffers."""

import gc

import numpy as np
import pytest
import torch

from ps_common.protocol.codecs import CODECS, Packed
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import AdamSettings, SgdSettings
from ps_server.state.optimizers import Optimizer
from ps_server.state.weight_store import Snapshot, WeightStore
from tests.ps_server.transcripts import SCHEMA, vector
from tests.simulation.violations import of_weights


def a_store(*weights: float) -> WeightStore:
    """With sgd, so that one update with learning rate 1 takes the gradient from the weights."""
    return WeightStore(SCHEMA, vector(*weights or (1, 2, 3)), Optimizer(SgdSettings(), SCHEMA))


def read(snapshot: Snapshot) -> list[float]:
    return [float(value) for value in np.frombuffer(snapshot.buffer, dtype="<f4")]


def address(snapshot: Snapshot) -> int:
    """The address of the bytes of a snapshot, without a reference to them."""
    return int(np.frombuffer(snapshot.buffer, dtype=np.uint8).ctypes.data)


def test_a_version_is_copied_once_however_many_readers_it_has() -> None:
    store = a_store()
    handed_out = {store.snapshot("float32") for _ in range(50)}
    pieces = [snapshot.buffer[4:8] for snapshot in handed_out]
    assert len({address(snapshot) for snapshot in handed_out}) == 1
    assert (len(handed_out), store.copies) == (1, 0)
    store.apply(vector(1, 1, 1), 1.0)
    assert store.copies == 1
    store.apply(vector(1, 1, 1), 1.0)
    assert store.copies == 1, "nobody holds the second version"
    assert store.snapshot("float32").version == 3
    assert store.snapshot("float32") not in handed_out
    assert [np.frombuffer(piece, dtype="<f4") for piece in pieces] == [2.0]


def test_a_version_is_encoded_once_for_each_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    pack, unpack, length = (
        (lambda weights: [(2 * weights).numpy()]),
        (lambda data, size: vector(1)),
        (lambda size: 4 * size),
    )
    monkeypatch.setitem(CODECS, "doubled", Packed("doubled", pack, unpack, length))
    store = a_store(1, 2, 3)
    for _ in range(3):
        assert read(store.snapshot("float32")) == [1, 2, 3]
        assert read(store.snapshot("doubled")) == [2, 4, 6]
    assert store.copies == 1, "float32 is no copy"
    assert store.snapshot("doubled").codec == "doubled"
    store.apply(vector(1, 1, 1), 1.0)
    assert store.copies == 1, "an encoded snapshot is held no more"


def test_a_snapshot_never_changes() -> None:
    store = a_store(0, 0, 0)
    held = []
    for update in range(20):
        held.append(store.snapshot("float32"))
        store.apply(vector(1, 2, 3), 1.0)
        if update == 10:
            store.refresh_target()
            held.append(store.snapshot("float32", target=True))
    for snapshot in held:
        updates = snapshot.version - 1
        assert read(snapshot) == [-updates, -2 * updates, -3 * updates]


def written(snapshot: Snapshot) -> list[float]:
    place = np.zeros(snapshot.size, dtype=np.uint8)
    snapshot.write_to(place)
    return [float(value) for value in place.view("<f4")]


def test_a_snapshot_written_to_a_slot_at_once_is_not_copied() -> None:
    store = a_store(1, 2, 3)
    for update in range(5):
        assert written(store.snapshot("float32")) == [1 - update, 2 - update, 3 - update]
        store.apply(vector(1, 1, 1), 1.0)
    store.refresh_target()
    assert written(store.snapshot("float32", target=True)) == [-4, -3, -2]
    assert store.copies == 0


def test_the_memory_of_a_snapshot_is_used_again_when_its_last_view_is_dropped() -> None:
    """A view alone may be left of a snapshot: a chunk in a socket's queue."""
    store = a_store(1, 2, 3)
    first = store.snapshot("float32")
    where, queued = address(first), first.buffer[4:8]
    del first
    store.apply(vector(1, 1, 1), 1.0)
    second = store.snapshot("float32")
    assert address(second) != where, "a piece of the first is still under way"
    assert np.frombuffer(queued, dtype="<f4") == [2]
    del queued
    gc.collect()
    store.apply(vector(1, 1, 1), 1.0)
    third = store.snapshot("float32")
    assert address(third) == where
    assert (read(second), read(third)) == ([0, 1, 2], [-1, 0, 1])


def test_many_versions_with_a_reader_who_is_one_behind_need_few_buffers() -> None:
    store = a_store()
    places, held = set(), store.snapshot("float32")
    for _ in range(100):
        store.apply(vector(1, 1, 1), 1.0)
        held = store.snapshot("float32")
        places.add(address(held))
    assert held.version == 101
    assert store.copies == 100
    assert len(places) <= 3


def test_the_target_is_the_weights_of_the_moment_it_was_refreshed() -> None:
    store = a_store(0, 0, 0)
    store.apply(vector(1, 1, 1), 1.0)
    assert read(store.snapshot("float32", target=True)) == [0, 0, 0]
    store.refresh_target()
    store.apply(vector(1, 1, 1), 1.0)
    target = store.snapshot("float32", target=True)
    assert (read(target), target.version, store.target_version) == ([-1, -1, -1], 2, 2)
    assert read(store.snapshot("float32")) == [-2, -2, -2]


def test_the_vectors_of_a_checkpoint_never_change() -> None:
    store = WeightStore(SCHEMA, vector(1, 2, 3), Optimizer(AdamSettings(), SCHEMA))
    store.apply(vector(1, 1, 1), 0.1)
    store.refresh_target()
    kept = store.vectors()
    assert kept.keys() == {"weights", "target", "optimizer.mean", "optimizer.mean_square", "optimizer.step"}
    before = {name: tensor.clone() for name, tensor in kept.items()}
    store.apply(vector(5, 5, 5), 0.1)
    store.refresh_target()
    assert all(torch.equal(kept[name], tensor) for name, tensor in before.items())
    other = store.vectors()
    store.restore(before, version=2, target_version=2)
    assert torch.equal(store.flat, before["weights"])
    assert torch.equal(other["weights"], other["target"])
    assert not torch.equal(other["weights"], store.flat), "nor does it when others are restored"


def test_a_restored_store_continues_bit_for_bit() -> None:
    original = WeightStore(SCHEMA, vector(1, 2, 3), Optimizer(AdamSettings(), SCHEMA))
    for number in range(10):
        original.apply(vector(1, -number, 0.1), 0.1)
        if number == 4:
            original.refresh_target()
    again = WeightStore(SCHEMA, vector(0, 0, 0), Optimizer(AdamSettings(), SCHEMA))
    again.restore(original.vectors(), version=original.version, target_version=original.target_version)
    for number in range(10):
        for store in (original, again):
            store.apply(vector(number, 1, -1), 0.1)
    assert (again.version, again.target_version) == (original.version, original.target_version) == (21, 6)
    mine, theirs = again.vectors(), original.vectors()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_statistics_are_added_to_and_weights_are_optimized() -> None:
    schema = Schema([TensorSpec("w", (2,)), TensorSpec("mean", (2,), role="statistic")])
    rule = Optimizer(AdamSettings(), schema)
    store = WeightStore(schema, torch.tensor([1.0, 1.0, 10.0, 20.0]), rule)
    store.apply(torch.tensor([0.0, 0.5, 0.0, -3.0]), learning_rate=0.1)
    assert store.flat[0] == 1.0
    assert float(store.flat[1]) == pytest.approx(0.9, abs=1e-4)
    assert store.flat[2:].tolist() == [10.0, 17.0]
    assert len(rule.slots["mean"]) == 2


def test_a_sum_of_what_is_not_negative_is_not_negative() -> None:
    names = ("seen.count", (1,)), ("seen.total", (2,)), ("seen.squares", (2,))
    schema = Schema([TensorSpec("w", (1,)), *(TensorSpec(*name, role="statistic") for name in names)])
    for at, is_sound in ((1, False), (2, True), (3, True), (4, False), (5, False)):
        store = WeightStore(schema, torch.ones(schema.size), Optimizer(SgdSettings(), schema))
        assert list(of_weights(store)) == []
        store.flat[at] = -1.0
        assert (list(of_weights(store)) == []) == is_sound, at
