"""The spaces of a policy as typed values with bounds, so that an exported policy needs no environment to be built."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ps_common.protocol.names import Signed
from ps_common.settings.run_spec import Environment
from rl_agent.environments.spaces import (
    MOST_ACTIONS,
    MOST_ELEMENTS,
    ActionSpace,
    BoxActions,
    DiscreteActions,
    MultiDiscreteActions,
    ObservationSpace,
    Part,
    Spaces,
    mask_size,
)

Size = Annotated[int, msgspec.Meta(ge=1, le=MOST_ELEMENTS)]
Shape = Annotated[tuple[Size, ...], msgspec.Meta(max_length=8)]
Choices = Annotated[int, msgspec.Meta(ge=1, le=MOST_ACTIONS)]
Seen = Literal["uint8", "float32"]


@dataclass(frozen=True)
class PolicySpaces:
    """The spaces of an agent without its environment."""

    observations: ObservationSpace
    actions: ActionSpace


class PartRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One part of a packed observation."""

    kind: Literal["image", "vector", "mask"]
    shape: Shape
    dtype: Seen
    offset: Annotated[int, msgspec.Meta(ge=0, le=MOST_ELEMENTS)]


class ObservationsRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The observation space."""

    shape: Shape
    dtype: Seen
    parts: tuple[PartRecord, ...] = ()


class DiscreteRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="discrete"):
    """One of `count` actions. Files of older versions have no numbers."""

    count: Choices
    names: tuple[str, ...] = ()
    numbers: tuple[Signed, ...] | None = None


class MultiDiscreteRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="multi_discrete"):
    """Several choices at once. Files of older versions only have the counts."""

    counts: Annotated[tuple[Choices, ...], msgspec.Meta(min_length=1, max_length=MOST_ACTIONS)]
    starts: tuple[Signed, ...] = ()
    shape: Shape | None = None
    dtype: Annotated[str, msgspec.Meta(pattern=r"^(u?int(8|16|32|64)|bool)\Z")] = "int64"


class BoxRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="box"):
    """A real vector; JSON has no infinity: None is no bound. Files of older versions only have the bounds."""

    low: Annotated[tuple[float | None, ...], msgspec.Meta(min_length=1, max_length=MOST_ACTIONS)]
    high: Annotated[tuple[float | None, ...], msgspec.Meta(min_length=1, max_length=MOST_ACTIONS)]
    shape: Shape | None = None
    dtype: Annotated[str, msgspec.Meta(pattern=r"^float(16|32|64|128)\Z")] = "float32"


class SpacesRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Both spaces."""

    observations: ObservationsRecord
    actions: DiscreteRecord | MultiDiscreteRecord | BoxRecord


def to_record(spaces: Spaces) -> SpacesRecord:
    """The record of these spaces."""
    observations = spaces.observations
    parts = tuple(
        PartRecord(kind=part.kind, shape=part.shape, dtype=_seen(part.dtype), offset=part.offset)
        for part in observations.parts
    )
    seen = ObservationsRecord(shape=observations.shape, dtype=_seen(observations.dtype), parts=parts)
    return SpacesRecord(observations=seen, actions=_action_record(spaces.actions))


def from_record(record: SpacesRecord, settings: Environment) -> PolicySpaces:
    """
    The spaces of a run with these settings, which say what the files of older versions leave out.

    Raises ValueError for parts that do not fit together.
    """
    seen = record.observations
    parts = tuple(Part(part.kind, part.shape, np.dtype(part.dtype), part.offset) for part in seen.parts)
    observations = ObservationSpace(seen.shape, np.dtype(seen.dtype), parts)
    if math.prod(seen.shape) > MOST_ELEMENTS:
        raise ValueError(f"an observation has {math.prod(seen.shape)} elements")
    if parts and (seen.dtype != "uint8" or len(seen.shape) != 1 or max(part.end for part in parts) > seen.shape[0]):
        raise ValueError(f"the parts of an observation lie outside of it: {observations}")
    actions = _recorded_actions(record.actions, settings)
    if observations.mask is not None and observations.mask.shape != (mask_size(actions),):
        raise ValueError(f"a mask of {list(observations.mask.shape)} for {mask_size(actions)} actions")
    return PolicySpaces(observations, actions)


def _action_record(actions: ActionSpace) -> DiscreteRecord | MultiDiscreteRecord | BoxRecord:
    match actions:
        case DiscreteActions():
            numbers = range(actions.count) if actions.numbers is None else actions.numbers.tolist()
            return DiscreteRecord(count=actions.count, names=tuple(actions.names), numbers=tuple(numbers))
        case MultiDiscreteActions():
            starts = tuple(actions.starts or (0,) * len(actions.counts))
            shape = actions.shape or (len(actions.counts),)
            return MultiDiscreteRecord(counts=actions.counts, starts=starts, shape=shape, dtype=str(actions.dtype))
        case BoxActions():
            low, high = (_bounds(ends) for ends in (actions.low, actions.high))
            shape, dtype = actions.shape or (len(low),), str(actions.low.dtype)
            return BoxRecord(low=low, high=high, shape=shape, dtype=dtype)


def _recorded_actions(record: DiscreteRecord | MultiDiscreteRecord | BoxRecord, settings: Environment) -> ActionSpace:
    match record:
        case DiscreteRecord(count=count, names=names):
            numbers = record.numbers or settings.actions or tuple(range(count))
            _check(count, numbers=numbers, names=names or numbers)
            return DiscreteActions(count, names, np.array(numbers, np.int64))
        case MultiDiscreteRecord(counts=counts):
            size = len(counts)
            _check(size, starts=record.starts or counts, shape=range(math.prod(record.shape or (size,))))
            if sum(counts) > MOST_ACTIONS:
                raise ValueError(f"there are {sum(counts)} actions")
            return MultiDiscreteActions(counts, record.starts, record.shape, np.dtype(record.dtype))
        case BoxRecord():
            dtype, size = np.dtype(record.dtype), len(record.low)
            _check(size, high=record.high, shape=range(math.prod(record.shape or (size,))))
            low, high = _array(record.low, -np.inf, dtype), _array(record.high, np.inf, dtype)
            if not (low <= high).all():
                raise ValueError("a lower bound of the actions is above its upper one")
            return BoxActions(low, high, record.shape)


def _check(size: int, **parts: Sequence[Any]) -> None:
    """Raises ValueError when one of these is not for `size` actions."""
    for name, part in parts.items():
        if len(part) != size:
            raise ValueError(f"the {name} of {len(part)} actions, where there are {size}")


def _seen(dtype: "np.dtype[Any]") -> Any:
    return str(dtype)


def _bounds(values: NDArray[Any]) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in values)


def _array(bounds: Sequence[float | None], missing: float, dtype: "np.dtype[Any]") -> NDArray[Any]:
    return np.array([missing if bound is None else bound for bound in bounds], dtype)
