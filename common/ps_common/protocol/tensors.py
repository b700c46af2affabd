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
MAX_ELEMENTS = 2**28  # 1 GiB of float32
ELEMENT_BYTES = 4  # of float32
# A norm of weights or their gradient that no sane training produces; float32 squares overflow not far above it.
ABSURD_NORM = 1e12
# A sum of observations or rewards, or of their squares, that leaves float32 no room to add up a run of such pushes.
ABSURD_STATISTIC = 1e30
NAME = r"^[!-~]{1,200}\Z"  # it is part of errors, logs and the text that is hashed


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    One tensor of the schema. `shape` is in elements; () is a scalar.

    The optimizer changes weights. To a statistic (say the mean of observations) the value in a push is added.
    """

    name: Annotated[str, msgspec.Meta(pattern=NAME)]
    shape: tuple[int, ...]
    dtype: Literal["float32"] = "float32"
    role: Literal["weight", "statistic"] = "weight"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of the tensor as float32."""
        return ELEMENT_BYTES * self.size

    def __str__(self) -> str:
        return f"{self.name!r} {list(self.shape)}"


class Schema:
    """
    An ordered list of tensor specs, and the place of each in the flat vector.

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
        return isinstance(other, Schema) and (self.specs, self.first, self.size) == (
            other.specs,
            other.first,
            other.size,
        )

    def __hash__(self) -> int:
        return hash((self.specs, self.first, self.size))

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
                return f"tensor {spec.name!r} is a {spec.role} here and a {other_spec.role} there"
        if extra := [spec for spec in other.specs if spec.name not in {own.name for own in self.specs}]:
            return f"tensor {extra[0]} is unknown here"
        return "" if self.specs == other.specs else "the same tensors are in another order"


def vector_bytes(buffers: Sequence[bytes | bytearray | memoryview]) -> int:
    """The bytes of an encoded vector, which one buffer or several hold."""
    return sum(memoryview(buffer).nbytes for buffer in buffers)


def _length(place: slice) -> int:
    return int(place.stop - place.start)


def _line(spec: TensorSpec) -> str:
    """The text that is hashed: simple enough for any language (PROTOCOL.md, section 3)."""
    role = "" if spec.role == "weight" else f" {spec.role}"
    return f"{spec.name} {spec.dtype} {','.join(map(str, spec.shape))}{role}\n"


def norm_of(vector: "Tensor", weights: int) -> float:
    """The Euclidean norm of the first `weights` elements; infinite or NaN if a statistic among the others is absurd."""
    if weights < len(vector):
        greatest = float(vector[weights:].abs().max())
        if not greatest <= ABSURD_STATISTIC:  # NaN is not
            return greatest * math.inf
        vector = vector[:weights]
    return math.sqrt(vector.dot(vector))  # a third of the time of norm() where the vector is short
