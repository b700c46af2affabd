"""
The spaces of B environments: the observation space and the action spaces, the same for every family.

Most observations are one array. Those with several parts (images, a vector, an action mask) are packed: a row of bytes
for each observation, so that everything between an environment and a network handles one array. Only the network reads
the parts.

An agent acts in a space of its own, so that a network needs no more than the space's size; `native` gives what the
environment takes for its actions, and `of_native` the agent's for those.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from rl_agent.native_observations import NativeMask, NativeObservations

Observations = NDArray[Any]  # [B, ...] uint8 or float32; packed ones [B, bytes] uint8
Actions = NDArray[Any]  # int64 [B] of DiscreteActions, [B, K] of MultiDiscreteActions; float32 [B, A] of BoxActions
Mask = NDArray[np.bool_]  # [B, M] True: allowed
PartKind = Literal["image", "vector", "mask"]

SIDE = re.compile("LEFT|RIGHT")  # in the name of an action
MOST_ELEMENTS = 2**24  # of an observation
MOST_ACTIONS = 2**16  # of a space, in all its choices together
ALIGNMENT = 4  # bytes: a part of float32 can be read in place


@dataclass(frozen=True)
class Part:
    """A part of a packed observation. `kind`: an image has its channels first; there is one vector and one mask."""

    kind: PartKind
    shape: tuple[int, ...]
    dtype: np.dtype[Any]  # uint8 or float32
    offset: int  # bytes
    key: str = field(default="", compare=False)  # the path in the Dict, such as arm.camera; of a vector all, "a, b"

    @property
    def end(self) -> int:
        """The first byte after the part."""
        return self.offset + int(np.prod(self.shape)) * self.dtype.itemsize

    def of(self, packed: Observations) -> NDArray[Any]:
        """[..., bytes] → [..., *shape], a view."""
        rows = packed[..., self.offset : self.end]
        return rows.view(self.dtype).reshape(*packed.shape[:-1], *self.shape)


@dataclass(frozen=True)
class ObservationSpace:
    """One array for each observation."""

    shape: tuple[int, ...]  # images with their channels first
    dtype: np.dtype[Any]  # uint8 or float32
    parts: tuple[Part, ...] = ()  # of a packed observation; () of a plain one
    # Of an image along its first axis, the oldest first: the next observation of a game repeats all but the oldest.
    frames: int = field(default=1, compare=False)
    native: NativeObservations | None = field(default=None, compare=False, repr=False)  # the environment's; None: these

    @property
    def pixels(self) -> bool:
        """The array is an image of bytes."""
        return self.dtype == np.uint8 and not self.parts

    @property
    def mask(self) -> Part | None:
        """The action mask, if there is one."""
        return next((part for part in self.parts if part.kind == "mask"), None)

    def floats(self, observations: Observations) -> list[NDArray[np.float32]]:
        """The parts of observations [B, ...] that may hold what is no finite number; views."""
        if self.parts:
            return [part.of(observations) for part in self.parts if part.dtype.kind == "f"]
        return [observations] if self.dtype.kind == "f" else []

    def __str__(self) -> str:
        if not self.parts:
            return f"{self.dtype} {list(self.shape)}"
        return ", ".join(f"{part.kind} {part.dtype} {list(part.shape)}" for part in self.parts)


def packed_space(parts: Sequence[tuple[PartKind, tuple[int, ...], Any, *tuple[str, ...]]]) -> ObservationSpace:
    """The space of packed observations with parts of these kinds, shapes, dtypes, and keys where there are some."""
    placed: list[Part] = []
    offset = 0
    for kind, shape, dtype, *key in parts:
        placed.append(Part(kind, shape, np.dtype(dtype), offset, *key))
        offset = -(-placed[-1].end // ALIGNMENT) * ALIGNMENT
    return ObservationSpace((offset,), np.dtype(np.uint8), tuple(placed))


def packed(space: ObservationSpace, arrays: Sequence[NDArray[Any]]) -> NDArray[np.uint8]:
    """A packed observation [..., bytes] of its parts [..., *shape], in the order of `space.parts`."""
    leading = np.shape(arrays[0])[: np.ndim(arrays[0]) - len(space.parts[0].shape)]
    rows = np.zeros((*leading, *space.shape), np.uint8)
    for part, array in zip(space.parts, arrays, strict=True):
        part.of(rows)[...] = array
    return rows


@dataclass(frozen=True)
class DiscreteActions:
    """One of the actions 0 … count − 1. A mask has `count` elements."""

    count: int
    names: tuple[str, ...] = field(default=(), compare=False)  # of the actions, where the environment has names
    numbers: NDArray[np.int64] | None = field(default=None, compare=False)  # [count] the environment's; None: not said

    def sample(self, random: np.random.Generator, size: int, mask: Mask | None = None) -> Actions:
        """`size` random actions, of those that the mask allows."""
        if mask is None:
            return random.integers(0, self.count, size)
        chosen: Actions = np.where(mask, random.random(mask.shape), -1.0).argmax(-1)
        return chosen

    def native(self, actions: Actions) -> Any:
        """[B] as the environment takes them, where its numbers are said; otherwise as they are."""
        return actions if self.numbers is None else self.numbers[actions]

    def of_native(self, actions: NDArray[Any]) -> Actions:
        """[B] the agent's, where the environment's numbers are said. Raises ValueError for others than these."""
        if self.numbers is None:
            return actions
        is_number = actions[:, None] == self.numbers
        if not is_number.any(1).all():
            raise ValueError(f"actions {actions.tolist()}: each must be one of {self.numbers.tolist()}")
        places: Actions = is_number.argmax(1)
        return places


@dataclass(frozen=True)
class MultiDiscreteActions:
    """K choices at once, each of 0 … counts[k] − 1. A mask has one element for each option of each choice, in turn."""

    counts: tuple[int, ...]
    starts: tuple[int, ...] = field(default=(), compare=False)  # the environment's number of each first option; (): 0
    shape: tuple[int, ...] | None = field(default=None, compare=False)  # of the environment's; None: [K]
    dtype: np.dtype[Any] = field(default=np.dtype(np.int64), compare=False)  # of the environment's

    def sample(self, random: np.random.Generator, size: int, mask: Mask | None = None) -> Actions:
        """`size` random actions, of those that the mask allows."""
        masks = [None] * len(self.counts) if mask is None else np.split(mask, np.cumsum(self.counts)[:-1], axis=-1)
        choices = zip(self.counts, masks, strict=True)
        return np.stack([DiscreteActions(count).sample(random, size, part) for count, part in choices], axis=-1)

    def native(self, actions: Actions) -> Any:
        """[B, K] → [B, *shape] as the environment takes them."""
        shifted = actions + np.array(self.starts) if self.starts else actions
        shape = actions.shape[1:] if self.shape is None else self.shape
        return shifted.reshape(len(actions), *shape).astype(self.dtype)

    def of_native(self, actions: NDArray[Any]) -> Actions:
        """[B, *shape] → [B, K] the agent's."""
        options: Actions = actions.reshape(len(actions), -1).astype(np.int64) - np.array(self.starts or 0)
        return options


@dataclass(frozen=True, eq=False)
class BoxActions:
    """
    A real vector, which the environment gets between two bounds, which may be infinite.

    The agent's numbers have no bounds: they are clipped. A masked number is 0 for the agent and does not count.
    """

    low: NDArray[np.floating[Any]]  # [A] in the environment's own type
    high: NDArray[np.floating[Any]]  # [A]
    shape: tuple[int, ...] | None = None  # of the environment's actions; None: [A]

    def sample(self, random: np.random.Generator, size: int, mask: Mask | None = None) -> Actions:
        """`size` random actions, which the environment gets uniformly; a missing bound counts as ±1."""
        low, high = self.finite_bounds()
        actions = random.uniform(low, high, (size, len(low))).astype(np.float32)
        return actions if mask is None else np.where(mask, actions, np.float32(0))

    def finite_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """[A] and [A]; a missing bound counts as ±1, or lies a width of 1 beyond the other one."""
        low = np.where(np.isfinite(self.low), self.low, np.minimum(-1, self.high - 1))
        high = np.where(np.isfinite(self.high), self.high, np.maximum(1, low + 1))
        return low.astype(np.float32), high.astype(np.float32)

    @cached_property
    def _rounded(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.low.astype(np.float32), self.high.astype(np.float32)

    def native(self, actions: Actions) -> Any:
        """[B, A] → [B, *shape] as the environment takes them, in its type and within its bounds."""
        # Twice: a bound may be no float32, and rounding may lead beyond one.
        bounded = np.clip(np.clip(actions, *self._rounded).astype(self.low.dtype), self.low, self.high)
        return bounded.reshape(len(actions), *(self.low.shape if self.shape is None else self.shape))

    def of_native(self, actions: NDArray[Any]) -> Actions:
        """[B, *shape] → [B, A] the agent's, which lead to these within the bounds."""
        return actions.reshape(len(actions), -1)


ActionSpace = DiscreteActions | MultiDiscreteActions | BoxActions


class Spaces(Protocol):
    """The spaces that an agent is built for: those of environments, or of an exported policy."""

    @property
    def observations(self) -> ObservationSpace: ...
    @property
    def actions(self) -> ActionSpace: ...


def mirrored_actions(actions: ActionSpace) -> list[int]:
    """The number of each action's mirror image, which has RIGHT for LEFT in its name and LEFT for RIGHT."""
    numbers = []
    names = actions.names if isinstance(actions, DiscreteActions) else ()
    if not any(SIDE.search(name) for name in names):
        raise SettingsError("--mirror-images: no action of this environment has LEFT or RIGHT in its name; remove it")
    for name in names:
        image = SIDE.sub(lambda side: "RIGHT" if side[0] == "LEFT" else "LEFT", name)
        if image not in names:
            raise SettingsError(
                f"--mirror-images: the actions {', '.join(names)} have {name} and not {image}; add it to --actions"
            )
        numbers.append(names.index(image))
    return numbers


def mask_size(actions: ActionSpace) -> int:
    """The number of elements of a mask over these actions."""
    match actions:
        case DiscreteActions():
            return actions.count
        case MultiDiscreteActions():
            return sum(actions.counts)
        case BoxActions():
            return len(actions.low)


def agents_mask(actions: ActionSpace, native: NativeMask, given: Any) -> NDArray[np.uint8]:
    """[M]: a mask that the environment gives, for the agent's actions. Raises ValueError for one of another size."""
    parts = given if isinstance(given, tuple | list) else (given,)  # Gymnasium's MultiDiscrete has a tuple of masks
    mask = np.concatenate([np.asarray(part).ravel() for part in parts]).astype(np.bool_)
    if len(mask) != native.size:
        raise ValueError(f"its action mask has {len(mask)} elements, and its actions {native.size}")
    if native.used is not None:
        mask = mask[list(native.used)]
    return usable_mask(actions, mask).astype(np.uint8)


def usable_mask(actions: ActionSpace, mask: Mask) -> Mask:
    """The mask [M], where a choice without any allowed option has all: environments send such masks at a game's end."""
    match actions:
        case DiscreteActions():
            return mask if mask.any() else np.ones_like(mask)
        case MultiDiscreteActions():
            choices = np.split(mask, np.cumsum(actions.counts)[:-1])
            return np.concatenate([choice if choice.any() else np.ones_like(choice) for choice in choices])
        case BoxActions():
            return mask
