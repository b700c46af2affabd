"""
The names and shapes behind one flat float32 vector.

All parameters of a network lie one after another, in the order of the schema, in one vector [P]; named tensors are
views into it. SEED fixes the schema, and later messages name it by its hash.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ps_common.errors import SchemaMismatch
from ps_common.protocol.lineage import range_of

if TYPE_CHECKING:  # ps-ctl, which only sends requests, must not wait for torch
    from torch import Tensor

# Bounds, so that a hostile schema cannot make the server allocate without end.
MAX_TENSORS = 1024
MAX_AXES = 8
MOST_OVERRIDES = 16  # of the optimizer's settings, in one block
MAX_ELEMENTS = 2**28  # 1 GiB of float32
ELEMENT_BYTES = 4  # of float32
# A norm of weights or their gradient that no sane training produces; float32 squares overflow not far above it.
ABSURD_NORM = 1e12
# A sum of observations or rewards, or of their squares, that leaves float32 no room to add up a run of such pushes.
ABSURD_STATISTIC = 1e30
NAME = r"^[!-~]{1,200}\Z"  # it is part of errors, logs and the text that is hashed


class BlockSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    The block that a weight belongs to: weights that move alike, and that a push may move alone.

    The learning rate of the run is multiplied by `learning_rate`. `optimizer` has settings of the run's optimizer that
    are others here.
    """

    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    learning_rate: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 1.0
    optimizer: Annotated[
        dict[Annotated[str, msgspec.Meta(pattern=NAME)], int | float], msgspec.Meta(max_length=MOST_OVERRIDES)
    ] = {}


NO_BLOCK = BlockSpec(name="-")  # of weights for which nothing is said; no push can move them alone


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    One tensor of the schema. `shape` is in elements; () is a scalar.

    The optimizer changes weights. To a statistic (say the mean of observations) the value in a push is added. `block`
    is left out where there is none, so that peers of earlier releases read the schema.
    """

    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    shape: tuple[int, ...]
    dtype: Literal["float32"] = "float32"
    role: Literal["weight", "statistic"] = "weight"
    block: BlockSpec | msgspec.UnsetType = msgspec.UNSET

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of the tensor as float32."""
        return ELEMENT_BYTES * self.size

    def is_as(self, other: "TensorSpec | None") -> bool:
        """Whether the other is the same tensor, in whatever block."""
        return other is not None and (self.name, self.shape, self.role) == (other.name, other.shape, other.role)

    def __str__(self) -> str:
        return f"{self.name!r} {list(self.shape)}"


class Schema:
    """
    An ordered list of tensor specs, and the place of each in the flat vector. Schemas are equal whose tensors are: how
    the blocks of a run move is no part of what its weights are.

    `size` is P, the number of elements of the flat vector, of which the first `weights` are weights and the others
    statistics; `hash` names the schema on the wire. The schema of a shard has the specs of the whole vector, and size,
    weights, statistics and hash of the range of that shard; `first` is where the range begins.
    """

    def __init__(self, specs: Iterable[TensorSpec], *, shard: int = 1, shards: int = 1) -> None:
        """Raises SchemaMismatch when the specs describe no vector, or one that is too short for so many shards."""
        self.specs = tuple(specs)
        self.shard, self.shards = shard, shards
        if not 0 < len(self.specs) <= MAX_TENSORS:
            raise SchemaMismatch(f"a schema has 1 to {MAX_TENSORS} tensors, not {len(self.specs)}")
        if len({spec.name for spec in self.specs}) != len(self.specs):
            raise SchemaMismatch("two tensors of the schema have the same name")
        for spec in self.specs:
            if not re.match(NAME, spec.name):
                raise SchemaMismatch(f"tensor {spec} must have a name of 1 to 200 ASCII characters without blanks")
            if len(spec.shape) > MAX_AXES or any(not 0 < axis <= MAX_ELEMENTS for axis in spec.shape):
                raise SchemaMismatch(f"tensor {spec} must have up to {MAX_AXES} axes, each of 1 or more")
        size = sum(spec.size for spec in self.specs)
        if size > MAX_ELEMENTS:
            raise SchemaMismatch(f"a schema may have up to {MAX_ELEMENTS} elements, not {size}")
        _check_blocks(self.specs)
        roles = [spec.role for spec in self.specs]
        if roles != sorted(roles, reverse=True) or roles[0] == "statistic":
            raise SchemaMismatch("weights come first in a schema, statistics after them")
        weights = sum(spec.size for spec in self.specs if spec.role == "weight")
        if weights < shards:
            raise SchemaMismatch(f"a network of {weights} weights cannot be cut into {shards} shards")
        self.first, end = range_of(shard, shards, weights)
        self.weights = end - self.first
        self.statistics = size - weights if shard == shards else 0
        self.size = self.weights + self.statistics
        lines = [*map(_line, self.specs), *([f"shard {shard}/{shards}\n"] if shards > 1 else [])]
        self.hash = hashlib.sha256("".join(lines).encode()).hexdigest()[:32]

    @cached_property
    def blocks(self) -> tuple[tuple[slice, BlockSpec], ...]:
        """
        The weights of this schema in ranges, each with its block. Each shard has as many ranges, some of them empty.
        """
        ranges: list[tuple[slice, BlockSpec]] = []
        at = -self.first
        for spec in self.specs:
            if spec.role == "statistic":
                break
            block = spec.block or NO_BLOCK
            begin = at if not ranges or ranges[-1][1] != block else ranges.pop()[0].start
            at += spec.size
            ranges.append((slice(begin, at), block))
        return tuple(
            (slice(*(min(max(end, 0), self.weights) for end in (place.start, place.stop))), block)
            for place, block in ranges
        )

    def at_rest(self, moved: Sequence[str]) -> list[slice]:
        """The ranges of weights that a push does not move which moves these blocks; () are all."""
        return [place for place, block in self.blocks if block.name not in moved] if moved else []

    @cached_property
    def moments(self) -> dict[str, tuple[slice, slice, slice]]:
        """
        The places in the flat vector of three statistics `X.count`, `X.total` and `X.squares`, by their X.

        They are sums over rows: of 1, of what was seen, and of its squares. A shard without statistics has none.
        """
        places, at = {}, -self.first
        for spec in self.specs if self.statistics else ():
            if spec.role == "statistic":
                places[spec.name] = slice(at, at + spec.size)
            at += spec.size
        found = {}
        for name, count in places.items():
            path = name.removesuffix(".count")
            total, squares = places.get(f"{path}.total"), places.get(f"{path}.squares")
            if path != name and total and squares and _length(count) == 1 and _length(total) == _length(squares):
                found[path] = (count, total, squares)
        return found

    @property
    def bytes(self) -> int:
        """Size of the flat vector as float32, the codec that takes the most."""
        return ELEMENT_BYTES * self.size

    @property
    def range(self) -> slice:
        """The elements of the whole vector that the vector of this schema holds."""
        return slice(self.first, self.first + self.size)

    def of_shard(self, shard: int, shards: int) -> "Schema":
        """The schema of one of so many shards. Raises SchemaMismatch."""
        return Schema(self.specs, shard=shard, shards=shards)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def views(self, flat: "Tensor") -> dict[str, "Tensor"]:
        """
        The named tensors inside `flat` [P], a piece [n] of one that was cut. They share its memory.

        Raises SchemaMismatch for another length.
        """
        if len(flat) != self.size:
            raise SchemaMismatch(f"a vector of this schema has {self.size} elements, not {len(flat)}")
        views, at = {}, -self.first
        for spec in self.specs:
            part = flat[max(at, 0) : max(at + spec.size, 0)]
            if len(part):
                views[spec.name] = part.view(spec.shape) if len(part) == spec.size else part
            at += spec.size
        return views

    def difference(self, other: "Schema") -> str:
        """
        One sentence on the first tensor that differs, here or there (in `other`); "" when none does.

        Schemas of different shards do not differ.
        """
        theirs = {spec.name: spec for spec in other.specs}
        for spec in self.specs:
            if spec.name not in theirs:
                return f"tensor {spec} is missing there"
            if theirs[spec.name] != spec:
                other_spec = theirs[spec.name]
                if other_spec.shape != spec.shape:
                    return f"tensor {spec.name!r} is {list(spec.shape)} here and {list(other_spec.shape)} there"
                if other_spec.role != spec.role:
                    return f"tensor {spec.name!r} is a {spec.role} here and a {other_spec.role} there"
                return f"tensor {spec.name!r} belongs to block {_words(spec)} here and to {_words(other_spec)} there"
        if extra := [spec for spec in other.specs if spec.name not in {own.name for own in self.specs}]:
            return f"tensor {extra[0]} is unknown here"
        return "" if self.specs == other.specs else "the same tensors are in another order"


def all_moved(pushes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The blocks that pushes move together, each of which moves these blocks; () are all."""
    return () if () in pushes else tuple(sorted({name for blocks in pushes for name in blocks}))


def vector_bytes(buffers: Sequence[bytes | bytearray | memoryview]) -> int:
    """The bytes of an encoded vector, which one buffer or several hold."""
    return sum(memoryview(buffer).nbytes for buffer in buffers)


def _length(place: slice) -> int:
    return int(place.stop - place.start)


def _check_blocks(specs: Sequence[TensorSpec]) -> None:
    """Raises SchemaMismatch for a statistic in a block, and for two blocks of one name."""
    blocks: dict[str, BlockSpec] = {NO_BLOCK.name: NO_BLOCK}
    for spec in specs:
        if not spec.block:
            continue
        if spec.role == "statistic":
            raise SchemaMismatch(f"tensor {spec} is a statistic, which belongs to no block")
        if blocks.setdefault(spec.block.name, spec.block) != spec.block or spec.block.name == NO_BLOCK.name:
            raise SchemaMismatch(f"tensor {spec}: another tensor's block {spec.block.name!r} has other settings")


def _words(spec: TensorSpec) -> str:
    return msgspec.json.encode(spec.block).decode() if spec.block else "none"


def _line(spec: TensorSpec) -> str:
    """The text that is hashed: simple enough for any language (PROTOCOL.md, section 3)."""
    role = "" if spec.role == "weight" else f" {spec.role}"
    return f"{spec.name} {spec.dtype} {','.join(map(str, spec.shape))}{role}\n"


def norm_of(vector: "Tensor", weights: int) -> float:
    """The Euclidean norm of the first `weights` elements; infinite or NaN if a statistic among the others is absurd."""
    if weights < vector.numel():  # len() of a tensor is Python, and takes as long as a short dot product
        greatest = float(vector[weights:].abs().max())
        if not greatest <= ABSURD_STATISTIC:  # NaN is not
            return greatest * math.inf
        vector = vector[:weights]
    return math.sqrt(vector.dot(vector))  # a third of the time of norm() where the vector is short
