"""
The weights of one run: one flat vector, its target copy, and the snapshots of it that are sent.

Invariants: `version` grows by exactly one for each applied gradient; a snapshot is never written to after it was handed
out; there is at most one copy made for each (version, codec).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from common.buffer_pool import BufferPool
from common.codecs import CODECS
from common.tensors import Schema
from ps_server.optimizers import Optimizer

BUFFERS_KEPT = 8  # for the next snapshots; more than that were slow readers' and go back to the system


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The encoded weights of one version, immutable, safe to send to any number of peers without copying."""

    version: int
    codec: str
    buffer: memoryview


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
        self.copies = 0  # snapshots made
        self._snapshots: dict[tuple[str, bool], Snapshot] = {}  # newest, by (codec, is target)
        self._pool = BufferPool(schema.size, kept=BUFFERS_KEPT)

    def apply(self, gradient: Tensor, learning_rate: float) -> None:
        """One update; `gradient` [P] is only read. In the place of statistics it holds what is added to them."""
        weights = self.schema.weights
        self.optimizer.apply(self.flat[:weights], gradient[:weights], learning_rate)
        self.flat[weights:] += gradient[weights:]
        self.version += 1

    def refresh_target(self) -> None:
        """θ⁻ ← θ"""
        self.target.copy_(self.flat)
        self.target_version = self.version

    def snapshot(self, codec: str, *, target: bool = False) -> Snapshot:
        """The weights (or target weights) of the newest version, encoded. Made at most once for each version."""
        vector, version = (self.target, self.target_version) if target else (self.flat, self.version)
        known = self._snapshots.get((codec, target))
        if known is None or known.version != version:
            if codec == "float32":  # which is a view
                vector = torch.from_numpy(self._pool.take()).copy_(vector)
            encoded = CODECS[codec].encode(vector, self.schema.statistics)
            known = Snapshot(version, codec, encoded.toreadonly())
            self._snapshots[codec, target] = known
            self.copies += 1
        return known

    def is_finite(self) -> bool:
        """Whether training has not ruined the weights."""
        return bool(torch.isfinite(torch.linalg.vector_norm(self.flat)))

    def vectors(self) -> dict[str, Tensor]:
        """Copies of everything a checkpoint keeps, by name."""
        return {name: vector.clone() for name, vector in self._live().items()}

    def restore(self, vectors: dict[str, Tensor], *, version: int, target_version: int) -> None:
        """Back to what a checkpoint kept."""
        for name, vector in self._live().items():
            vector.copy_(vectors[name])
        self.version, self.target_version = version, target_version
        self._snapshots.clear()

    def _live(self) -> dict[str, Tensor]:
        slots = {f"optimizer.{name}": slot for name, slot in self.optimizer.slots.items()}
        return {"weights": self.flat, "target": self.target, **slots}
