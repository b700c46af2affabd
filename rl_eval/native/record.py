"""
What an environment shows, as typed values with bounds, beside the spaces of an exported policy.

Files of older versions have none of it: their policies take the parts that the network sees.
"""

import math
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from ps_common.protocol.names import Signed
from rl_agent.environments.spaces import MOST_ACTIONS, MOST_ELEMENTS, ObservationSpace, mask_size
from rl_agent.native_observations import Leaf, NativeMask, NativeObservations
from rl_eval.spaces_record import Choices, PolicySpaces, Seen, Shape

MOST_LEAVES = 4096
Keys = Annotated[tuple[str | int, ...], msgspec.Meta(max_length=32)]
Options = Annotated[int, msgspec.Meta(ge=1, le=MOST_ELEMENTS)]


class LeafRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of an observation that is no Dict or Tuple: an image if it has channels, one-hot if it has counts."""

    path: Keys = ()
    shape: Shape = ()
    dtype: Seen = "float32"
    channels: Literal["none", "first", "last", "of each frame"] | None = None
    counts: Annotated[tuple[Options, ...], msgspec.Meta(max_length=MOST_ELEMENTS)] = ()
    starts: tuple[Signed, ...] = ()


class MaskRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The environment's action masks, and which of its options the policy's actions are."""

    in_info: bool
    size: Choices
    used: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(max_length=MOST_ACTIONS)] | None = None


class NativeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All leaves of an observation, those of its vector first."""

    leaves: Annotated[tuple[LeafRecord, ...], msgspec.Meta(min_length=1, max_length=MOST_LEAVES)]
    mask: MaskRecord | None = None


def native_to_record(space: ObservationSpace) -> NativeRecord | None:
    """The record; None of a space without, and of one that no file can have, such as one with keys that are no text."""
    native = space.native
    if native is None or len(native.leaves) > MOST_LEAVES:
        return None
    mask = None
    if native.mask is not None:
        mask = MaskRecord(in_info=native.mask.in_info, size=native.mask.size, used=native.mask.used)
    try:
        leaves = tuple(
            msgspec.convert(
                {
                    "path": leaf.path,
                    "shape": leaf.shape,
                    "dtype": str(leaf.dtype),
                    "channels": leaf.channels,
                    "counts": leaf.counts,
                    "starts": leaf.starts,
                },
                LeafRecord,
            )
            for leaf in native.leaves
        )
        record = NativeRecord(leaves=leaves, mask=mask)
        msgspec.json.encode(record)  # a key may be half of a surrogate pair
    except (msgspec.ValidationError, UnicodeError):
        return None
    return record


def with_native(spaces: PolicySpaces, record: NativeRecord | None) -> PolicySpaces:
    """The spaces with what their environment shows. Raises ValueError for what does not make these spaces."""
    if record is None:
        return spaces
    leaves = tuple(_leaf(one) for one in record.leaves)
    mask = None if record.mask is None else NativeMask(record.mask.in_info, record.mask.size, record.mask.used)
    observations, vector = spaces.observations, [leaf for leaf in leaves if leaf.channels is None]
    images = [leaf for leaf in leaves if leaf.channels is not None]
    shown: list[tuple[Any, tuple[int, ...], str]] = []
    keys = [", ".join(leaf.key for leaf in vector)] if vector else []
    if vector:
        shown.append(("vector", (sum(leaf.array_shape[0] for leaf in vector),), "float32"))
    shown += [("image", leaf.array_shape, str(leaf.dtype)) for leaf in images]
    keys += [leaf.key for leaf in images]
    if mask is not None:
        shown.append(("mask", (mask_size(spaces.actions),), "uint8"))
        keys.append("action_mask")
        _check_mask(mask, mask_size(spaces.actions))
    if observations.parts:
        seen = [(part.kind, part.shape, str(part.dtype)) for part in observations.parts]
    else:
        seen = [(shown[0][0], observations.shape, str(observations.dtype))]
    if shown != seen or (*vector, *images) != leaves:
        raise ValueError(f"what the environment shows does not become {observations}")
    parts = tuple(replace(part, key=key) for part, key in zip(observations.parts, keys, strict=False))
    return replace(spaces, observations=replace(observations, parts=parts, native=NativeObservations(leaves, mask)))


def _leaf(record: LeafRecord) -> Leaf:
    """Raises ValueError for a leaf that cannot be."""
    ranks = {"none": 2, "first": 3, "last": 3, "of each frame": 4}
    leaf = Leaf(record.path, record.shape, np.dtype(record.dtype), record.channels, record.counts, record.starts)
    if record.channels is not None and (len(record.shape) != ranks[record.channels] or record.counts):
        raise ValueError(f"an image of shape {record.shape}")
    if record.counts and not len(record.counts) == len(record.starts) == math.prod(record.shape):
        raise ValueError(f"{len(record.counts)} choices of shape {record.shape}")
    if math.prod(leaf.array_shape) > MOST_ELEMENTS:
        raise ValueError(f"a part has {math.prod(leaf.array_shape)} elements")
    return leaf


def _check_mask(mask: NativeMask, actions: int) -> None:
    used = range(mask.size) if mask.used is None else mask.used
    if len(used) != actions or max(used) >= mask.size:
        raise ValueError(f"a mask of {mask.size} elements, of which {len(used)} are used, for {actions} actions")
