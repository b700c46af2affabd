"""
The weights of one run: one flat vector, its target copy, and the snapshots of it that are sent.

Invariants: `version` grows by exactly one for each applied gradient; a snapshot is never written to after it was handed
out; there is at most one copy made for each (version, codec).
"""

from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from common.buffer_pool import BufferPool
from common.codecs import CODECS
from common.tensors import Schema
from ps_server.optimizers import Optimizer

BUFFERS_KEPT = 8  # for the next copies; more than that were slow readers' and go back to the system


class Snapshot:
    """
    The encoded weights of one version, safe to send to any number of peers.

    The copy is made when somebody asks for its bytes, or else, while somebody holds it, just before the weights change.
    Whoever only writes it to a place of his own at once has the weights copied there and nowhere else.
    """

    def __init__(self, store: "WeightStore", version: int, codec: str, *, target: bool) -> None:
        self.version = version
        self.codec = codec
        self.target = target
        self._store = store

    @cached_property
    def buffer(self) -> memoryview:
        """Its bytes, which never change."""
        return self._store.copied(self)

    @property
    def size(self) -> int:
        """In bytes."""
        return 4 * self._store.schema.size if self.codec == "float32" else len(self.buffer)

    def write_to(self, place: np.ndarray) -> None:
        """Write its bytes to an array [size] of uint8."""
        if self.codec == "float32" and "buffer" not in self.__dict__:
            place.view("<f4")[:] = self._store.vector(target=self.target).numpy()
        else:
            place[:] = self.buffer


class WeightStore:
    """Weights θ [P], target weights θ⁻ [P] and the optimizer that moves them."""

    def __init__(self, schema: Schema, vector: Tensor, optimizer: Optimizer) -> None:
        """`vector` [P] float32 is copied; it is version 1."""
        self.schema = schema
        self.optimizer = optimizer
        self.version = 1
        self.flat = vector.clone()
        self.target = self.flat.clone()
        self.target_version = 1  # the version that the target is a copy of
        self.copies = 0  # made for snapshots
        self._snapshots: WeakValueDictionary[tuple[str, bool], Snapshot] = WeakValueDictionary()  # by codec, is target
        self._copied: dict[tuple[str, bool], Snapshot] = {}  # those of them that others may still ask for
        self._pool = BufferPool(schema.size, kept=BUFFERS_KEPT)

    def apply(self, gradient: Tensor, learning_rate: float) -> None:
        """One update; `gradient` [P] is only read. In the place of statistics it holds what is added to them."""
        self._copy_what_is_held(target=False)
        weights = self.schema.weights
        self.optimizer.apply(self.flat[:weights], gradient[:weights], learning_rate)
        self.flat[weights:] += gradient[weights:]
        self.version += 1

    def refresh_target(self) -> None:
        """θ⁻ ← θ"""
        self._copy_what_is_held(target=True)
        self.target.copy_(self.flat)
        self.target_version = self.version

    def snapshot(self, codec: str, *, target: bool = False) -> Snapshot:
        """The weights (or target weights) of the newest version. Copied at most once for each version."""
        version = self.target_version if target else self.version
        known = self._snapshots.get((codec, target))
        if known is None or known.version != version:
            known = self._snapshots[codec, target] = Snapshot(self, version, codec, target=target)
        return known

    def vector(self, *, target: bool) -> Tensor:
        """The weights or target weights [P] themselves, only to be read."""
        return self.target if target else self.flat

    def copied(self, snapshot: Snapshot) -> memoryview:
        """The bytes of a snapshot, whose version is the newest."""
        vector = self.vector(target=snapshot.target)
        if snapshot.codec == "float32":  # which is a view
            vector = self._copy_of(vector)
        encoded = CODECS[snapshot.codec].encode(vector, self.schema.statistics)
        self._copied[snapshot.codec, snapshot.target] = snapshot
        self.copies += 1
        return encoded.toreadonly()

    def _copy_what_is_held(self, *, target: bool) -> None:
        """The weights are about to change."""
        for snapshot in list(self._snapshots.values()):
            if snapshot.target == target:
                _ = snapshot.buffer

    def is_finite(self) -> bool:
        """Whether training has not ruined the weights."""
        return bool(torch.isfinite(torch.linalg.vector_norm(self.flat)))

    def vectors(self) -> dict[str, Tensor]:
        """Copies of everything a checkpoint keeps, by name."""
        return {name: self._copy_of(vector) for name, vector in self._live().items()}

    def _copy_of(self, vector: Tensor) -> Tensor:
        """In memory that is used again: fresh pages cost several times what the copy does, while nobody is served."""
        if vector.dim() == 0:
            return vector.clone()
        return torch.from_numpy(self._pool.take())[: vector.numel()].view(vector.shape).copy_(vector)

    def restore(self, vectors: dict[str, Tensor], *, version: int, target_version: int) -> None:
        """Back to what a checkpoint kept."""
        self._copied.clear()
        self._copy_what_is_held(target=False)
        self._copy_what_is_held(target=True)
        for name, vector in self._live().items():
            vector.copy_(vectors[name])
        self.version, self.target_version = version, target_version

    def _live(self) -> dict[str, Tensor]:
        slots = {f"optimizer.{name}": slot for name, slot in self.optimizer.slots.items()}
        return {"weights": self.flat, "target": self.target, **slots}
