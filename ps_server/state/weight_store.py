"""
The weights of one run: one flat vector, its target copy, and the snapshots that are sent.

Invariants: `version` grows by one with each update; a snapshot never changes; each version is copied at most once and
encoded at most once per codec. Deltas lead away from versions that were sent; these are kept within a bound in bytes.
Each delta is made once, and of a version a few: whoever asks for one from each version kept gets whole weights.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from ps_common.buffer_pool import BufferPool
from ps_common.errors import CheckpointError
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.deltas import DELTA, WHOLE, Base
from ps_common.protocol.record import SLOT, TARGET, WEIGHTS, is_finite
from ps_common.protocol.tensors import Schema
from ps_common.protocol.wire import Buffer
from ps_server.state.copy_on_write import CopyOnWriteVector
from ps_server.state.optimizers import Optimizer

BUFFERS_KEPT = 8  # for the next copies; the buffers of further slow readers are freed
MOST_DELTAS = 8  # that lead to one version: a worker asks for one of the version before, or a few before
BASES_BYTES = 2**26  # 64 MiB of versions that deltas may lead away from; docs/GUARANTEES.md states it
MOST_ROWS = 2.0**24  # of a statistic: float32 counts one by one up to here


class Snapshot:
    """
    The encoded weights of one version, immutable, for any number of peers.

    A float32 snapshot is a view of the weights themselves, copy-on-write: while the snapshot, or a chunk of it in a
    socket's queue, exists, an update goes to a copy.
    """

    def __init__(
        self,
        version: int,
        codec: str,
        encode: Callable[["Snapshot"], memoryview],
        *,
        target: bool,
        base: int = 0,
    ) -> None:
        """`encode` makes the bytes, when they are first needed. `base` is the version that a delta leads away from."""
        self.version, self.codec, self.target, self.base = version, codec, target, base
        self._encode: Callable[[Snapshot], memoryview] | None = encode  # it keeps the vector alive: None once it is run

    @cached_property
    def buffer(self) -> memoryview:
        """The encoded bytes, which never change."""
        assert self._encode is not None, "it is encoded once"
        encoded, self._encode = self._encode(self), None
        return encoded

    @property
    def size(self) -> int:
        return len(self.buffer)

    def write_to(self, place: np.ndarray) -> None:
        """Copy the bytes to an array [size] of uint8."""
        place[:] = self.buffer


class DeltaBases:
    """
    The newest versions that workers who take deltas were sent, as bfloat16, within a bound in bytes.

    A worker whose version is no longer kept gets the weights whole. A run without deltas keeps nothing; no version is
    kept that alone exceeds the bound.
    """

    def __init__(self, weights: int, *, most_bytes: int = BASES_BYTES) -> None:
        """`weights`: the elements at the beginning of each version that are weights."""
        self._weights = weights
        self._most_bytes = most_bytes
        self._bases: dict[int, Base] = {}  # by version, the oldest first; all of one length

    def __contains__(self, version: int) -> bool:
        return version in self._bases

    def __getitem__(self, version: int) -> Base:
        return self._bases[version]

    def __len__(self) -> int:
        return len(self._bases)

    def keep(self, version: int, encoded: Buffer) -> None:
        """Keep the newest version, whose bytes in bfloat16 never change; the oldest make room for it."""
        if version in self._bases or len(encoded) > self._most_bytes:
            return
        self._bases[version] = Base(encoded, self._weights)
        while len(self._bases) * len(encoded) > self._most_bytes:
            del self._bases[next(iter(self._bases))]


class WeightStore:
    """Weights θ [P], target weights θ⁻ [P] and the optimizer that moves them."""

    def __init__(self, schema: Schema, vector: Tensor, optimizer: Optimizer, *, has_target: bool = True) -> None:
        """`vector` [P] float32 is copied; it is version 1. Without `has_target`, θ⁻ is θ."""
        self.schema = schema
        self.optimizer = optimizer
        self.version = 1
        self._pool = BufferPool(schema.size, kept=BUFFERS_KEPT)
        self._weights = CopyOnWriteVector(vector, self._pool)
        self._target = CopyOnWriteVector(vector, self._pool) if has_target else self._weights
        self._refreshed = 1  # the version that θ⁻ is a copy of
        self._snapshots: WeakValueDictionary[tuple[str, bool], Snapshot] = WeakValueDictionary()  # by codec, is target
        self._encoded: dict[tuple[str, bool], Snapshot] = {}  # kept for the next peers that request this encoding
        self._encodings = 0
        self._bases = DeltaBases(schema.weights)
        self._deltas: dict[int, Snapshot] = {}  # to the newest version that one was asked for, by the base

    @property
    def flat(self) -> Tensor:
        """θ [P]: read only, and valid until the next update."""
        return self._weights.values

    @property
    def target(self) -> Tensor:
        """θ⁻ [P]: read only, and valid until the next refresh."""
        return self._target.values

    @property
    def target_version(self) -> int:
        """The version that θ⁻ is a copy of."""
        return self._refreshed if self._has_target else self.version

    @property
    def copies(self) -> int:
        """Number of copies for snapshots, encodings included."""
        return sum(vector.copies for vector in {self._weights, self._target}) + self._encodings

    def apply(self, gradient: Tensor, learning_rate: float, moved: Sequence[str] = ()) -> None:
        """
        One update, of the blocks named `moved`; () are all. `gradient` [P] is only read; its part for statistics is
        added to them.
        """
        flat, weights = self._weights.writable(), self.schema.weights
        if not self.schema.statistics:
            self.optimizer.apply(flat, gradient, learning_rate, moved)
        else:
            self.optimizer.apply(flat[:weights], gradient[:weights], learning_rate, moved)
            flat[weights:] += gradient[weights:]
            _fade(flat, self.schema)
        self.version += 1

    def refresh_target(self) -> None:
        """θ⁻ ← θ"""
        assert self._has_target, "without a target, θ⁻ is θ"
        self._target.replace(self.flat)
        self._refreshed = self.version

    def snapshot(self, codec: str, *, target: bool = False) -> Snapshot:
        version = self.target_version if target else self.version
        known = self._snapshots.get((codec, target))
        if known is None or known.version != version:
            vector = (self._target if target else self._weights).share()
            known = Snapshot(version, codec, lambda snapshot: self._encoding(vector, snapshot), target=target)
            self._snapshots[codec, target] = known
        return known

    def snapshot_for(self, codec: str, *, target: bool, base: int) -> Snapshot:
        """
        The newest weights (or target weights) in this codec.

        A delta leads away from version `base` where that is kept; else the weights are whole. 0 is no version.
        """
        if codec != DELTA:
            return self.snapshot(codec, target=target)
        whole = self.snapshot(WHOLE, target=target)
        if target:
            return whole
        self._bases.keep(whole.version, whole.buffer)
        if any(delta.version != whole.version for delta in self._deltas.values()):
            self._deltas.clear()
        if base in self._deltas:
            return self._deltas[base]
        if base not in self._bases or len(self._deltas) >= MOST_DELTAS:
            return whole
        older, newer = self._bases[base], whole.buffer
        made = Snapshot(whole.version, DELTA, lambda _: memoryview(older.delta_to(newer)), target=False, base=base)
        self._deltas[base] = made
        return made

    def _encoding(self, vector: Tensor, snapshot: Snapshot) -> memoryview:
        encoded = CODECS[snapshot.codec].encode(vector, self.schema.statistics).toreadonly()
        if snapshot.codec != "float32":  # whose encoding is a view of the vector
            self._encoded[snapshot.codec, snapshot.target] = snapshot
            self._encodings += 1
        return encoded

    def is_finite(self) -> bool:
        return is_finite(self.flat)

    def is_all_finite(self) -> bool:
        """Whether everything that a checkpoint keeps is finite: weights and optimizer slots."""
        return self.is_finite() and all(map(is_finite, self._slots().values()))

    def vectors(self) -> dict[str, Tensor]:
        """The vectors of a checkpoint, by name; immutable."""
        target = {TARGET: self._target.share()} if self._has_target else {}
        slots = {name: self._copy_of(slot) for name, slot in self._slots().items()}
        return {WEIGHTS: self._weights.share(), **target, **slots}

    def _copy_of(self, slot: Tensor) -> Tensor:
        """A copy in a pooled buffer: fresh pages would cost several times the copy itself, and delay all workers."""
        if slot.dim() == 0:
            return slot.clone()
        return torch.from_numpy(self._pool.take())[: slot.numel()].view(slot.shape).copy_(slot)

    def restore(self, vectors: dict[str, Tensor], *, version: int, target_version: int) -> None:
        """Restore the vectors of a checkpoint. Raises CheckpointError when they lack a slot of the optimizer."""
        self._snapshots.clear()
        self._encoded.clear()
        self._deltas.clear()
        self._bases = DeltaBases(self.schema.weights)
        self._weights.replace(vectors[WEIGHTS])
        if self._has_target:
            # A checkpoint of a run without θ⁻ may be resumed with one, which then begins as θ.
            self._target.replace(vectors.get(TARGET, vectors[WEIGHTS]))
        for name, slot in self._slots().items():
            if name not in vectors or vectors[name].shape != slot.shape:
                raise CheckpointError(f"the checkpoint has no {name} {list(slot.shape)}: it is of another optimizer")
            slot.copy_(vectors[name])
        self.version, self._refreshed = version, target_version

    @property
    def _has_target(self) -> bool:
        return self._target is not self._weights

    def _slots(self) -> dict[str, Tensor]:
        return {f"{SLOT}{name}": slot for name, slot in self.optimizer.slots.items()}


def _fade(flat: Tensor, schema: Schema) -> None:
    """
    Halve the sums of MOST_ROWS rows: older rows then count less than newer ones, which float32 could hardly count
    otherwise. Mean and variance stay what they are, and nothing is rounded.
    """
    for places in schema.moments.values():
        if float(flat[places[0]]) >= MOST_ROWS:
            for place in places:
                flat[place] *= 0.5
