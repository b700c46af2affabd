"""
What an environment shows, and how each leaf of it becomes numbers or an image: with nothing but numpy, so that a policy
reads what its environment showed without the environment.

A leaf is a part of an observation that is no Dict or Tuple. Its numbers are taken as they are, or its choices one-hot;
images get their channels first. environments/gymnasium_spaces.py says which leaves a space has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Channels = Literal["none", "first", "last", "of each frame"]  # their place in an image

UINT8, FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)
INTEGERS = "bui"  # kinds of dtypes


def fitted(seen: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """
    What is shown, as an array of this shape and type, uint8 or float32. It may be the same array.

    Axes of length 1 may differ. Raises ValueError for another shape, and for values that are no numbers, or no bytes
    where dtype is uint8.
    """
    array = np.asarray(seen)
    if array.dtype == dtype and array.shape == shape:
        return array
    if not _alike(array.shape, shape):
        raise ValueError(f"it has shape {array.shape}, and {shape} is expected")
    is_bytes = dtype == np.uint8
    if array.dtype.kind not in ("bui" if is_bytes else "buif") or (is_bytes and ((array < 0) | (array > 255)).any()):
        has_bounds = array.dtype.kind in "buif" and array.size > 0
        seen_bounds = f" from {array.min():g} to {array.max():g}" if has_bounds else ""
        wanted = "bytes from 0 to 255 (uint8)" if is_bytes else "numbers"
        remedy = ""
        if is_bytes and array.dtype.kind == "f":
            is_unit = has_bounds and array.max() <= 1
            remedy = f", as {'(255 * x)' if is_unit else 'x'}.astype(numpy.uint8)"
        raise ValueError(f"it is {array.dtype}{seen_bounds}, and {wanted} are expected{remedy}")
    return array.reshape(shape).astype(dtype, copy=False)


@dataclass(frozen=True)
class Leaf:
    """A part of what an environment shows. It is an image if it has `channels`, else numbers in the one vector."""

    path: tuple[Any, ...]  # keys of a Dict and places in a Tuple, the outermost first; (): the observation itself
    shape: tuple[int, ...]  # as the environment shows it; () of a Discrete
    dtype: np.dtype[Any] = FLOAT32  # of what is taken as it is: uint8 or float32
    channels: Channels | None = None
    counts: tuple[int, ...] = ()  # the options of each choice, which are one-hot; (): numbers as they are
    starts: tuple[int, ...] = ()  # the number of the first option of each choice

    @property
    def key(self) -> str:
        """The path in one word, such as `camera` or `arm.joints`; "" of an observation that is one leaf."""
        return ".".join(map(str, self.path))

    @cached_property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of its array: [numbers], or [C, H, W]."""
        match self.channels:
            case None:
                return (sum(self.counts) if self.counts else int(np.prod(self.shape)),)
            case "none":
                return (1, *self.shape)
            case "first":
                return self.shape
            case "last":
                return (self.shape[2], *self.shape[:2])
        frames, rows, columns, channels = self.shape
        return frames * channels, rows, columns

    def within(self, observation: Any) -> Any:
        """The leaf of an observation, or of a batch of them."""
        return within(observation, self.path)

    def of(self, observation: Any) -> Array:
        """The array of the leaf of one observation. Raises ValueError, TypeError or LookupError."""
        return self.array(self.within(observation))

    def array(self, value: Any) -> Array:
        """float32 [numbers], or an image with its channels first. Raises ValueError."""
        if self.counts:
            return self._one_hot(np.asarray(value))
        array = fitted(value, self.shape, self.dtype)
        if self.channels is None:
            return array.ravel().astype(np.float32, copy=False)
        if self.channels == "last":
            return array.transpose(2, 0, 1)
        if self.channels == "of each frame":
            array = array.transpose(0, 3, 1, 2)
        return array.reshape(self.array_shape)

    def count_in(self, value: Any) -> int | None:
        """0 of a value that is one leaf, N of a batch of N; -1: axes of length 1 differ; None: neither."""
        array = np.asarray(value)
        if array.dtype.kind not in (INTEGERS if self.counts else "buif"):
            return None
        if array.shape == self.shape:
            return 0
        if array.ndim and array.shape[1:] == self.shape:
            return len(array)
        return -1 if _alike(array.shape, self.shape) else None

    def _one_hot(self, chosen: Array) -> Array:
        if chosen.dtype.kind not in INTEGERS or chosen.size != len(self.counts):
            raise ValueError(
                f"it is {chosen.dtype} of shape {chosen.shape}, and integers of shape {self.shape} are expected"
            )
        options = chosen.reshape(-1).astype(np.int64) - self._first
        if (options.astype(np.uint64) >= self._counts).any():  # a negative number becomes a large one
            counts, starts = list(self.counts), self._first.tolist()
            raise ValueError(f"it is {chosen.tolist()}, which is out of bounds: {counts} options, the first {starts}")
        hot = np.zeros(self.array_shape, np.float32)
        hot[options + self._offsets] = 1
        return hot

    @cached_property
    def _first(self) -> NDArray[np.int64]:
        return np.array(self.starts or (0,) * len(self.counts), np.int64)

    @cached_property
    def _counts(self) -> NDArray[np.uint64]:
        return np.array(self.counts, np.uint64)

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        return np.cumsum((0, *self.counts[:-1]))


@dataclass(frozen=True)
class NativeMask:
    """Action masks as an environment gives them."""

    in_info: bool  # else a key of the observation
    size: int  # M: one element for each option
    used: tuple[int, ...] | None = None  # the options that are the agent's actions; None: all


@dataclass(frozen=True)
class NativeObservations:
    """All leaves of what an environment shows, those of the vector first, and its masks."""

    leaves: tuple[Leaf, ...]
    mask: NativeMask | None = None

    @cached_property
    def numbers(self) -> int:
        """How many of the leaves are of the vector."""
        return sum(leaf.channels is None for leaf in self.leaves)

    def count_in(self, observation: Any) -> int | None:
        """0 of one observation, N of a batch of N in one structure; None: it is neither."""
        try:
            counts = {leaf.count_in(leaf.within(observation)) for leaf in self.leaves}
        except (ValueError, TypeError, LookupError):
            return None
        if None in counts:
            return None
        if 0 not in counts and -1 not in counts and len(counts) == 1:
            return counts.pop()
        return 0 if counts <= {0, 1, -1} else None

    def rows(self, observation: Any, count: int) -> list[list[Array]]:
        """The arrays of each observation of a batch."""
        values = [leaf.within(observation) for leaf in self.leaves]
        leaves = zip(self.leaves, values, strict=True)
        read = [[leaf.array(value[row]) for row in range(count)] for leaf, value in leaves]
        return [joined([arrays[row] for arrays in read], self.numbers) for row in range(count)]

    def one(self, observation: Any) -> list[Array]:
        """The arrays of one observation. Raises ValueError, which names the leaf that does not fit."""
        read = []
        for leaf in self.leaves:
            try:
                read.append(leaf.of(observation))
            except (KeyError, IndexError) as error:
                raise ValueError(f"it has no {leaf.key}") from error
            except (ValueError, TypeError) as error:
                raise ValueError(f"{leaf.key}: {error}" if leaf.path else str(error)) from error
        return joined(read, self.numbers)


def within(observation: Any, path: tuple[Any, ...]) -> Any:
    """What stands at this path of an observation."""
    for key in path:
        observation = observation[key]
    return observation


def joined(arrays: list[Array], numbers: int) -> list[Array]:
    """The arrays of all leaves, of which the first `numbers` become one vector."""
    return arrays if numbers < 2 else [np.concatenate(arrays[:numbers]), *arrays[numbers:]]


def mask_row(masks: Any, row: int) -> Any:
    """The mask of one environment in those of a batch, [N, M] or a tuple of [N, M]."""
    return tuple(part[row] for part in masks) if isinstance(masks, tuple) else masks[row]


def is_batch_of_mappings(observation: Any) -> bool:
    """Whether it is a sequence of observations of a Dict."""
    return (
        isinstance(observation, list | tuple)
        and len(observation) > 0
        and all(isinstance(one, Mapping) for one in observation)
    )


def _alike(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether they differ in nothing but axes of length 1."""
    return [size for size in shape if size != 1] == [size for size in other if size != 1]
