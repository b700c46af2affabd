"""
The weights of one run: one flat vector, its target copy, and the snapshots of it that are sent.

Invariants: `version` grows by exactly one for each applied gradient; a snapshot is never written to after it was handed
out; for each version there is at most one copy, and one encoding for each codec.
"""

from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from common.buffer_pool import BufferPool
from common.protocol.codecs import CODECS
from common.protocol.tensors import Schema
from ps_server.state.copy_on_write import CopyOnWriteVector
from ps_server.state.optimizers import Optimizer

BUFFERS_KEPT = 8  # for the next copies; more than that were slow readers' and go back to the system


class Snapshot:
    """
    The encoded weights of one version, safe to send to any number of peers.

    As float32 these are the weights themselves, where they lie: they go on elsewhere if they change while the snapshot,
    or a piece of it in a socket's queue, is held.
    """

    def __init__(self, store: "WeightStore", vector: Tensor, version: int, codec: str, *, target: bool) -> None:
        self.version = version
        self.codec = codec
        self.target = target
        self._store = store
        self._vector: Tensor | None = vector  # that nobody writes to; None when it is encoded

    @cached_property
    def buffer(self) -> memoryview:
        """Its bytes, which never change."""
        assert self._vector is not None, "it is encoded once"
        encoded = CODECS[self.codec].encode(self._vector, self._store.schema.statistics).toreadonly()
        if self.codec != "float32":  # which is a view
            self._vector = None
            self._store.encoded(self)
        return encoded

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.buffer)

    def write_to(self, place: np.ndarray) -> None:
        """Write its bytes to an array [size] of uint8."""
        place[:] = self.buffer


class WeightStore:
    """Weights θ [P], target weights θ⁻ [P] and the optimizer that moves them."""

    def __init__(self, schema: Schema, vector: Tensor, optimizer: Optimizer, *, has_target: bool = True) -> None:
        """`vector` [P] float32 is copied; it is version 1. Without a target of its own, θ⁻ is θ."""
        self.schema = schema
        self.optimizer = optimizer
        self.version = 1
        self._pool = BufferPool(schema.size, kept=BUFFERS_KEPT)
        self._weights = CopyOnWriteVector(vector, self._pool)
        self._target = CopyOnWriteVector(vector, self._pool) if has_target else self._weights
        self._refreshed = 1  # the version that a target of its own is a copy of
        self._snapshots: WeakValueDictionary[tuple[str, bool], Snapshot] = WeakValueDictionary()  # by codec, is target
        self._encoded: dict[tuple[str, bool], Snapshot] = {}  # those of them whose encoding others may still ask for
        self._encodings = 0

    @property
    def flat(self) -> Tensor:
        """θ [P], only to be read, and only until it changes."""
        return self._weights.values

    @property
    def target(self) -> Tensor:
        """θ⁻ [P], likewise."""
        return self._target.values

    @property
    def target_version(self) -> int:
        """The version that the target is."""
        return self._refreshed if self._has_target else self.version

    @property
    def copies(self) -> int:
        """Made for snapshots, encodings among them."""
        return sum(held.copies for held in {self._weights, self._target}) + self._encodings

    def apply(self, gradient: Tensor, learning_rate: float) -> None:
        """One update; `gradient` [P] is only read. In the place of statistics it holds what is added to them."""
        flat, weights = self._weights.writable(), self.schema.weights
        self.optimizer.apply(flat[:weights], gradient[:weights], learning_rate)
        flat[weights:] += gradient[weights:]
        self.version += 1

    def refresh_target(self) -> None:
        """θ⁻ ← θ"""
        assert self._has_target, "it is the weights"
        self._target.replace(self.flat)
        self._refreshed = self.version

    def snapshot(self, codec: str, *, target: bool = False) -> Snapshot:
        """The weights (or target weights) of the newest version."""
        version = self.target_version if target else self.version
        known = self._snapshots.get((codec, target))
        if known is None or known.version != version:
            vector = (self._target if target else self._weights).share()
            known = self._snapshots[codec, target] = Snapshot(self, vector, version, codec, target=target)
        return known

    def encoded(self, snapshot: Snapshot) -> None:
        """A snapshot has been encoded: it is kept for who asks next."""
        self._encoded[snapshot.codec, snapshot.target] = snapshot
        self._encodings += 1

    def is_finite(self) -> bool:
        """Whether training has not ruined the weights."""
        return _is_finite(self.flat)

    def is_sound(self) -> bool:
        """Whether all that a checkpoint keeps is finite: what the optimizer remembers, too."""
        return self.is_finite() and all(map(_is_finite, self._slots().values()))

    def vectors(self) -> dict[str, Tensor]:
        """Everything a checkpoint keeps, by name; it stays as it is."""
        target = {"target": self._target.share()} if self._has_target else {}
        slots = {name: self._copy_of(slot) for name, slot in self._slots().items()}
        return {"weights": self._weights.share(), **target, **slots}

    def _copy_of(self, slot: Tensor) -> Tensor:
        """In memory that is used again: fresh pages cost several times what the copy does, while nobody is served."""
        if slot.dim() == 0:
            return slot.clone()
        return torch.from_numpy(self._pool.take())[: slot.numel()].view(slot.shape).copy_(slot)

    def restore(self, vectors: dict[str, Tensor], *, version: int, target_version: int) -> None:
        """Back to what a checkpoint kept."""
        self._snapshots.clear()
        self._encoded.clear()
        self._weights.replace(vectors["weights"])
        if self._has_target:
            # A run that had no target of its own when it was kept, and has one from now on, begins with the weights.
            self._target.replace(vectors.get("target", vectors["weights"]))
        for name, slot in self._slots().items():
            slot.copy_(vectors[name])
        self.version, self._refreshed = version, target_version

    @property
    def _has_target(self) -> bool:
        return self._target is not self._weights

    def _slots(self) -> dict[str, Tensor]:
        return {f"optimizer.{name}": slot for name, slot in self.optimizer.slots.items()}


def _is_finite(vector: Tensor) -> bool:
    """In one pass: a sum is finite only if all that it is of is. (It could overflow, far beyond what guards let in.)"""
    return bool(torch.isfinite(vector.sum()))
