"""The newest version of a run's weights, as a worker has it: of one server, or of all shards together."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor

from ps_common.protocol.deltas import Base
from ps_common.protocol.messages import Settlement


class Newest(Struct, frozen=True):
    """The newest version; its weights unless the worker has them already."""

    epoch: int
    version: int
    global_steps: int
    target_version: int
    weights: Tensor | None  # [P] float32, read-only: a view of the received message
    settled: Settlement | None = None  # of the push that requested the weights
    parts: tuple["Newest", ...] = ()  # of each shard, without weights, where there are shards
    base: Base | None = None  # this version, for the next delta, where weights travel so
    workers: int = 0  # that are alive; 0: unknown
    recalls: int = 0  # how often the run went back to a checkpoint in this epoch

    @property
    def of_parts(self) -> Sequence["Newest"]:
        """Of each server, in order."""
        return self.parts or (self,)


def joined(parts: Sequence[Newest], ranges: Sequence[slice], vector: Tensor) -> Newest:
    """
    The parts of all shards as one. Its versions are sums, which differ when a version of any shard does: none ever
    falls. `vector` has the weights of former parts, and gets the new ones in their ranges.
    """
    for part, its_range in zip(parts, ranges, strict=True):
        if part.weights is not None:
            vector[its_range] = part.weights
    discarded = [part.settled for part in parts if part.settled and part.settled.verdict == "discarded"]
    return Newest(
        epoch=sum(part.epoch for part in parts),
        version=sum(part.version for part in parts),
        global_steps=parts[0].global_steps,
        target_version=sum(part.target_version for part in parts),
        weights=vector if any(part.weights is not None for part in parts) else None,
        settled=discarded[0] if discarded else parts[0].settled,
        parts=tuple(replace(part, weights=None) for part in parts),
        workers=parts[0].workers,
        recalls=sum(part.recalls for part in parts),
    )
