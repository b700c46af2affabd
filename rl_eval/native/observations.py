"""
What a policy may be shown, as one array: what the environment of its run shows, or the parts that its network sees.

Which of the two it is shows in its structure and its shapes. Where these tell nothing, as of an image whose three sides
are equal, it is what the environment shows.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_agent.environments.spaces import ActionSpace, ObservationSpace, Part, agents_mask, packed
from rl_agent.native_observations import NativeMask, NativeObservations, fitted, is_batch_of_mappings, mask_row

MASK = "action_mask"


def as_seen(
    space: ObservationSpace, actions: ActionSpace, observation: Any, action_mask: Any = None
) -> tuple[NDArray[Any], bool]:
    """
    [N, ...] as the network sees it, and whether it is of one observation.

    `action_mask` is the one that the environment gave in `info` beside the observation. Raises ValueError.
    """
    if action_mask is not None and not (space.native and space.native.mask and space.native.mask.in_info):
        raise ValueError("action_mask: the environment of this policy's run gives none in info; remove it")
    if (native := space.native) is not None:
        if is_batch_of_mappings(observation):
            masks = [None if action_mask is None else mask_row(action_mask, row) for row in range(len(observation))]
            rows = [_one(space, native, actions, one, mask) for one, mask in zip(observation, masks, strict=True)]
            return np.stack(rows), False
        count = _native_count(space, native, observation, action_mask)
        if count is not None:
            return _native(space, native, actions, observation, action_mask, count)
    if isinstance(observation, Mapping):
        raise ValueError(f"an observation is a list of its parts: {space}")
    return _parts(space, observation)


def _native_count(
    space: ObservationSpace, native: NativeObservations, observation: Any, action_mask: Any
) -> int | None:
    """0 of one observation of the environment, N of a batch; None: it is of the parts that the network sees."""
    is_sequence = isinstance(observation, list | tuple)
    if action_mask is None and native.mask and native.mask.in_info and is_sequence:
        return None  # the parts, of which the mask is one
    if native.leaves[0].path and not is_sequence and not isinstance(observation, Mapping):
        return None  # an array, of what is a Dict or Tuple in the environment
    found = native.count_in(observation)
    if found is None:
        return 0 if isinstance(observation, Mapping) else None  # what does not fit is named where it is read
    first = native.leaves[0]
    if not first.path and not first.counts and np.shape(observation) == space.shape != first.shape:
        return None
    return found


def _native(
    space: ObservationSpace,
    native: NativeObservations,
    actions: ActionSpace,
    observation: Any,
    action_mask: Any,
    count: int,
) -> tuple[NDArray[Any], bool]:
    if not count:
        return _one(space, native, actions, observation, action_mask)[None], True
    try:
        rows = native.rows(observation, count)
        if native.mask is not None:
            masks = _given_mask(native.mask, observation, action_mask)
            for row, arrays in enumerate(rows):
                arrays.append(agents_mask(actions, native.mask, mask_row(masks, row)))
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"an observation does not fit this policy: {error}") from error
    return np.stack([_array(space, arrays) for arrays in rows]), False


def _one(
    space: ObservationSpace, native: NativeObservations, actions: ActionSpace, observation: Any, action_mask: Any
) -> NDArray[Any]:
    try:
        arrays = native.one(observation)
        if native.mask is not None:
            arrays.append(agents_mask(actions, native.mask, _given_mask(native.mask, observation, action_mask)))
    except ValueError as error:
        raise ValueError(f"an observation does not fit this policy: {error}") from error
    return _array(space, arrays)


def _given_mask(mask: NativeMask, observation: Any, action_mask: Any) -> Any:
    given = action_mask if mask.in_info else observation.get(MASK)
    if given is None:
        where = f"give the one of its info: act(observation, {MASK}=info[{MASK!r}])" if mask.in_info else "add its key"
        raise ValueError(f"it has no {MASK}; {where}")
    return given


def _array(space: ObservationSpace, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return packed(space, arrays) if space.parts else arrays[0]


def _parts(space: ObservationSpace, observation: Any) -> tuple[NDArray[Any], bool]:
    """[N, ...] of an array, of packed rows, or of a list of parts."""
    parts = space.parts
    if not parts or (not isinstance(observation, list | tuple) and np.shape(observation)[-1:] == space.shape):
        return _rows(observation, space.shape, space.dtype, "an observation")
    if not isinstance(observation, list | tuple) or len(observation) != len(parts):
        raise ValueError(f"an observation is a list of its parts: {space}")
    rows = [_part_rows(one, part) for one, part in zip(observation, parts, strict=True)]
    if len({len(arrays) for arrays, _ in rows}) > 1:
        raise ValueError(f"the parts are of {', '.join(str(len(arrays)) for arrays, _ in rows)} observations")
    return packed(space, [arrays for arrays, _ in rows]), all(one for _, one in rows)


def _part_rows(seen: Any, part: Part) -> tuple[NDArray[Any], bool]:
    """The rows of a part. A mask of any numbers allows what is not 0."""
    given = np.not_equal(seen, 0) if part.kind == "mask" else seen
    return _rows(given, part.shape, part.dtype, f"the {part.kind}")


def _rows(seen: Any, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> tuple[NDArray[Any], bool]:
    """[N, *shape], and whether it was one observation of this shape. Raises ValueError."""
    found = np.shape(seen)
    is_one = not (len(found) == len(shape) + 1 and found[1:] == shape)
    try:
        return (fitted(seen, shape, dtype)[None] if is_one else fitted(seen, found, dtype)), is_one
    except ValueError as error:
        raise ValueError(f"{what} does not fit this policy: {error}") from error
