"""
Gymnasium's spaces as arrays: an observation of any space becomes one array; an action becomes the environment's.

- An image is a Box of rank 3, or of rank 4 with channels last, or of rank 2 unless it is small: its channels go first,
  stacked frames count as channels. Gymnasium's images have their channels last; in a Box of rank 3 they are taken to be
  first where the last two axes are more alike than the first two, as sides are, and the first axis is the smallest or
  the last two are equal.
- Everything else becomes numbers in one float32 vector: discrete parts one-hot, Dict and Tuple in Gymnasium's order.
- A Dict or Tuple with images, and anything with an action mask, is packed (see spaces.py).

A mask is a key `action_mask` of a Dict observation or of `info`: 1 marks what is allowed (as in PettingZoo and in
Gymnasium's Taxi).
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.ids import action_table
from rl_agent.environments.spaces import (
    ActionSpace,
    BoxActions,
    DiscreteActions,
    MultiDiscreteActions,
    ObservationSpace,
    PartKind,
    agents_mask,
    mask_size,
    packed,
    packed_space,
)
from rl_agent.native_observations import FLOAT32, Channels, Leaf, NativeMask, NativeObservations, fitted, joined, within

MASK = "action_mask"
BYTES = (np.uint8, np.bool_)
REMEDY = "return what the space says, or declare the space of what is returned"
MISFITS = (ValueError, TypeError, LookupError, RuntimeError)  # what numpy and torch raise for what is not of a space
FEWEST_ROWS = 8  # of an image of bytes of rank 2; smaller arrays are numbers
FEWEST_FLOAT_ROWS = 16  # of an image of floats of rank 2; smaller ones more often are tables, say of a few neighbours
MOST_BOUND = float(np.finfo(np.float32).max) / 2  # of an action: a float32 holds its range; beyond there is no bound
MOST_CHANNELS = 4  # in the last of four axes: gray, RGB, RGBA

Array = NDArray[Any]


class ActionCodec:
    """The actions of an agent, and what the environment takes for them."""

    def __init__(self, settings: Environment, space: Space[Any]) -> None:
        """Raises SettingsError if the space is not supported."""
        self.environment = settings.id
        if isinstance(space, Discrete):
            options = int(space.n)
            table = action_table(settings, options)
            self.actions: ActionSpace = DiscreteActions(len(table), numbers=table + int(space.start))
            self.native_mask = NativeMask(in_info=False, size=options, used=tuple(table.tolist()))
            return
        if settings.actions:
            raise SettingsError(f"--actions: {settings.id} has the action space {space}; leave --actions out")
        self.actions = _several(space) or _real(settings, space)
        self.native_mask = NativeMask(in_info=False, size=mask_size(self.actions))

    def mask(self, given: Any) -> NDArray[np.uint8]:
        """[M]: the environment's mask for the agent's actions; None allows all."""
        try:
            return agents_mask(
                self.actions, self.native_mask, np.ones(self.native_mask.size) if given is None else given
            )
        except ValueError as error:
            raise SettingsError(
                f"--environment {self.environment}: {error}; with --action-mask none it is ignored"
            ) from error


class ObservationReader:
    """Reads each observation of one environment as one array; `array_space` describes the array."""

    def __init__(self, space: Space[Any], codec: ActionCodec, *, masks: Literal["none", "key", "info"]) -> None:
        """`masks`: the place of action masks. Raises SettingsError if the observation space is not supported."""
        if not space.is_np_flattenable:
            raise SettingsError(f"--environment {codec.environment}: its observation space {space} fits no array")
        self._codec, self._space = codec, space
        has_key = isinstance(space, Dict) and MASK in space.spaces
        self._masks = masks if masks != "key" or has_key else "none"
        read = [_leaf(path, leaf) for path, leaf in leaves(space) if not (has_key and path[0] == MASK)]
        # Those of the vector come first.
        self._leaves = sorted(
            filter(lambda leaf: math.prod(leaf.array_shape), read), key=lambda leaf: leaf.channels is not None
        )
        self._numbers = sum(leaf.channels is None for leaf in self._leaves)
        if not self._leaves:
            raise SettingsError(
                f"--environment {codec.environment}: its observation space {space} has no numbers in it; "
                "show one at least, such as a constant 0"
            )
        self.array_space = self._described()
        self._is_vector = isinstance(space, Box) and space.shape == self.array_space.shape and len(space.shape) == 1

    def array(self, observation: Any, info: Any, *, is_last: bool = False) -> Array:
        """
        The array of one observation, which may be the environment's own. Of `info` only the mask is read.

        The last observation of a game needs no mask. Raises SettingsError for what is not of the space.
        """
        try:
            arrays: list[Array] = joined([leaf.of(observation) for leaf in self._leaves], self._numbers)
            if not self.array_space.parts:
                return arrays[0]
            if self._masks != "none":
                arrays.append(
                    self._codec.mask(observation[MASK] if self._masks == "key" else self._mask(info, is_last))
                )
            return packed(self.array_space, arrays)
        except MISFITS as error:
            raise self._misfit(error) from error

    def arrays(self, space: Space[Any], observations: Any) -> Array:
        """[B, ...] copies of the observations of a vector environment in its space of B. Raises SettingsError."""
        try:
            if self._is_vector:
                assert isinstance(space, Box), "a vector of such"
                return fitted(observations, space.shape, kept_type(space)).astype(np.float32)
            return np.stack([self.array(one, {}) for one in iterate(space, observations)])
        except MISFITS as error:
            raise self._misfit(error) from error

    def _mask(self, info: Any, is_last: bool) -> Any:
        """The mask that stands in `info`. The last observation of a game may have None."""
        mask = info.get(MASK)
        if mask is None and not is_last:
            raise SettingsError(
                f"--environment {self._codec.environment}: info has no {MASK}, as it had after the first reset; give "
                "one after each step, or ignore masks with --action-mask none"
            )
        return mask

    def _misfit(self, error: Exception) -> SettingsError:
        why = f"KeyError: {error}" if isinstance(error, KeyError) else error
        return SettingsError(
            f"--environment {self._codec.environment}: an observation does not fit its space {self._space}: {why}; "
            f"{REMEDY}"
        )

    def _described(self) -> ObservationSpace:
        vector = [leaf for leaf in self._leaves if leaf.channels is None]
        images = [leaf for leaf in self._leaves if leaf.channels is not None]
        parts: list[tuple[PartKind, tuple[int, ...], Any, str]] = []
        if vector:
            numbers = sum(leaf.array_shape[0] for leaf in vector)
            parts.append(("vector", (numbers,), FLOAT32, ", ".join(leaf.key for leaf in vector)))
        parts += [("image", leaf.array_shape, leaf.dtype, leaf.key) for leaf in images]
        if self._masks == "none" and len(parts) == 1:
            space = ObservationSpace(*parts[0][1:3])
        else:
            if self._masks != "none":
                parts.append(("mask", (mask_size(self._codec.actions),), np.uint8, MASK))
            space = packed_space(parts)
        native = tuple(leaf for leaf in self._leaves if isinstance(leaf, Leaf))
        if len(native) < len(self._leaves):
            return space  # only Gymnasium reads it
        in_info = self._masks == "info"
        mask = None if self._masks == "none" else dataclasses.replace(self._codec.native_mask, in_info=in_info)
        return dataclasses.replace(space, native=NativeObservations(native, mask))


@dataclass(frozen=True)
class Flattened:
    """A leaf that only Gymnasium makes numbers of, such as a text."""

    path: tuple[Any, ...]
    space: Space[Any]
    channels: None = None

    @property
    def key(self) -> str:
        """The path in one word."""
        return ".".join(map(str, self.path))

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of its array."""
        return (spaces.flatdim(self.space),)

    def of(self, observation: Any) -> Array:
        """The array of the leaf of one observation."""
        return np.asarray(spaces.flatten(self.space, within(observation, self.path)), np.float32)


def leaves(space: Space[Any], path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Space[Any]]]:
    """The parts of a space that are no Dict or Tuple, each with its path in the whole observation."""
    if not isinstance(space, Dict | Tuple):
        return [(path, space)]
    named = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
    return [leaf for name, part in named for leaf in leaves(part, (*path, name))]


def shows_masks(environment: gymnasium.Env[Any, Any]) -> bool:
    """The environment gives masks in `info`. Resets it."""
    return MASK in environment.reset(seed=0)[1]


def _several(space: Space[Any]) -> MultiDiscreteActions | None:
    """The actions of a space of several choices; None of another space."""
    if isinstance(space, MultiDiscrete):
        counts, starts = (tuple(map(int, numbers.ravel())) for numbers in (space.nvec, space.start))
        return MultiDiscreteActions(counts, starts, space.nvec.shape, np.dtype(space.dtype))
    if isinstance(space, MultiBinary):
        counts = (2,) * int(np.prod(space.shape))
        return MultiDiscreteActions(counts, shape=space.shape, dtype=np.dtype(space.dtype))
    return None


def _real(settings: Environment, space: Space[Any]) -> BoxActions:
    """The actions of a Box of real numbers. Raises SettingsError for another space, and for bounds missing."""
    if not (isinstance(space, Box) and np.issubdtype(space.dtype, np.floating)):
        raise SettingsError(
            f"--environment {settings.id}: its action space is {space}; supported are Discrete, MultiDiscrete, "
            "MultiBinary and Box of floating-point numbers"
        )
    low = np.where(space.low < -MOST_BOUND, -np.inf, space.low).astype(space.dtype)
    high = np.where(space.high > MOST_BOUND, np.inf, space.high).astype(space.dtype)
    return BoxActions(low.ravel(), high.ravel(), space.shape)


def _leaf(path: tuple[Any, ...], space: Space[Any]) -> Leaf | Flattened:
    match space:
        case Box():
            return Leaf(path, space.shape, kept_type(space), _channels(space) if _is_image(space) else None)
        case Discrete():
            return Leaf(path, (), counts=(int(space.n),), starts=(int(space.start),))
        case MultiDiscrete():
            counts, starts = (tuple(map(int, numbers.ravel())) for numbers in (space.nvec, space.start))
            return Leaf(path, space.nvec.shape, counts=counts, starts=starts)
        case MultiBinary():
            return Leaf(path, space.shape)
    return Flattened(path, space)


def kept_type(space: Box[Any]) -> np.dtype[Any]:
    """Bytes stay bytes, in an image to the network; everything else is float32."""
    return np.dtype(np.uint8) if space.dtype == np.uint8 else FLOAT32


def _is_image(space: Space[Any]) -> TypeGuard[Box[Any]]:
    if not isinstance(space, Box):
        return False
    match len(space.shape):
        case 2:
            return min(space.shape) >= (FEWEST_ROWS if space.dtype in BYTES else FEWEST_FLOAT_ROWS)
        case 4:
            return space.shape[3] <= MOST_CHANNELS
        case rank:
            return rank == 3


def _channels(space: Box[Any]) -> Channels:
    """The place of an image's channels."""
    if len(space.shape) == 2:
        return "none"
    if len(space.shape) == 4:
        return "of each frame"
    return "first" if _has_channels_first(*space.shape) else "last"


def _has_channels_first(first: int, middle: int, last: int) -> bool:
    if first >= min(middle, last) and middle != last:
        return False
    # The ratio of the last two is nearer to 1 than that of the first two; products have no zero to divide by.
    return max(middle, last) * min(first, middle) < max(first, middle) * min(middle, last)
