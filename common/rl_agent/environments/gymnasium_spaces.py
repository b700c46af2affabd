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

from collections.abc import Callable
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
    fitted,
    mask_size,
    packed,
    packed_space,
    usable_mask,
)

MASK = "action_mask"
BYTES = (np.uint8, np.bool_)
FLOAT = np.dtype(np.float32)
REMEDY = "return what the space says, or declare the space of what is returned"
MISFITS = (ValueError, TypeError, LookupError, RuntimeError)  # what numpy and torch raise for what is not of a space
FEWEST_ROWS = 8  # of an image of bytes of rank 2; smaller arrays are numbers
FEWEST_FLOAT_ROWS = 16  # of an image of floats of rank 2; smaller ones more often are tables, say of a few neighbours
MOST_BOUND = float(np.finfo(np.float32).max) / 2  # of an action: a float32 holds its range; beyond there is no bound
MOST_CHANNELS = 4  # in the last of four axes: gray, RGB, RGBA

Array = NDArray[Any]
Read = Callable[[Any], Any]  # of a part, from the whole observation


class ActionCodec:
    """The actions of an agent, and what the environment takes for them."""

    def __init__(self, settings: Environment, space: Space[Any]) -> None:
        """Raises SettingsError if the space is not supported."""
        self.environment = settings.id
        self._options = 0  # of a Discrete space
        self._table: NDArray[np.int64] | None = None  # which of them each action is
        if isinstance(space, Discrete):
            self._options = int(space.n)
            self._table = action_table(settings, self._options)
            self.actions: ActionSpace = DiscreteActions(len(self._table), numbers=self._table + int(space.start))
            return
        if settings.actions:
            raise SettingsError(f"--actions: {settings.id} has the action space {space}; leave --actions out")
        self.actions = _several(space) or _real(settings, space)

    def mask(self, given: Any) -> NDArray[np.uint8]:
        """[M]: the environment's mask for the agent's actions; None allows all."""
        size = mask_size(self.actions) if self._table is None else self._options
        if given is None:
            given = np.ones(size)
        parts = given if isinstance(given, tuple | list) else (given,)  # Gymnasium's MultiDiscrete has a tuple of masks
        mask = np.concatenate([np.asarray(part).ravel() for part in parts]).astype(np.bool_)
        if len(mask) != size:
            raise SettingsError(
                f"--environment {self.environment}: its action mask has {len(mask)} elements, and its actions {size}; "
                "with --action-mask none it is ignored"
            )
        if self._table is not None:
            mask = mask[self._table]
        return usable_mask(self.actions, mask).astype(np.uint8)


class ObservationReader:
    """Reads each observation of one environment as one array; `array_space` describes the array."""

    def __init__(self, space: Space[Any], codec: ActionCodec, *, masks: Literal["none", "key", "info"]) -> None:
        """`masks`: the place of action masks. Raises SettingsError if the observation space is not supported."""
        if not space.is_np_flattenable:
            raise SettingsError(f"--environment {codec.environment}: its observation space {space} fits no array")
        has_key, seen = False, leaves(space)
        if isinstance(space, Dict):
            has_key = MASK in space.spaces
            named = [(name, part) for name, part in space.spaces.items() if name != MASK]
            seen = [(_then(name, read), leaf) for name, part in named for read, leaf in leaves(part)]
        self._codec, self._space = codec, space
        self._masks = masks if masks != "key" or has_key else "none"
        vectors = [(read, leaf) for read, leaf in seen if not _is_image(leaf)]
        images = [(read, leaf, *_image(leaf)) for read, leaf in seen if _is_image(leaf)]
        numbers = sum(spaces.flatdim(leaf) for _, leaf in vectors)
        if not numbers and not images:
            raise SettingsError(
                f"--environment {codec.environment}: its observation space {space} has no numbers in it; "
                "show one at least, such as a constant 0"
            )
        self.array_space = self._described(numbers, [(shape, kept_type(leaf)) for _, leaf, _, shape in images])
        self._is_vector = isinstance(space, Box) and space.shape == self.array_space.shape == (numbers,)
        self._reads = [_concatenated([_vector(read, leaf) for read, leaf in vectors])] if numbers else []
        self._reads += [_picture(read, leaf, turned) for read, leaf, turned, _ in images]

    def array(self, observation: Any, info: Any, *, is_last: bool = False) -> Array:
        """
        The array of one observation, which may be the environment's own. `info` is read for a mask alone.

        The last observation of a game needs no mask. Raises SettingsError for what is not of the space.
        """
        try:
            arrays: list[Array] = [read(observation) for read in self._reads]
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

    def _described(self, numbers: int, images: list[tuple[tuple[int, ...], np.dtype[Any]]]) -> ObservationSpace:
        if self._masks == "none" and not (images and (numbers or len(images) > 1)):
            return ObservationSpace(*(images[0] if images else ((numbers,), FLOAT)))
        parts: list[tuple[Literal["image", "vector", "mask"], tuple[int, ...], Any]] = []
        if numbers:
            parts.append(("vector", (numbers,), np.float32))
        parts += [("image", shape, dtype) for shape, dtype in images]
        if self._masks != "none":
            parts.append(("mask", (mask_size(self._codec.actions),), np.uint8))
        return packed_space(parts)


def leaves(space: Space[Any]) -> list[tuple[Read, Space[Any]]]:
    """The parts of a space that are no Dict or Tuple, each with how it is read from the whole observation."""
    if not isinstance(space, Dict | Tuple):
        return [(lambda observation: observation, space)]
    named = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
    return [(_then(name, read), leaf) for name, part in named for read, leaf in leaves(part)]


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
    squashed = settings.box_actions == "squashed"
    low = np.where(space.low < -MOST_BOUND, -np.inf, space.low).astype(space.dtype)
    high = np.where(space.high > MOST_BOUND, np.inf, space.high).astype(space.dtype)
    if squashed and not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise SettingsError(f"--box-actions squashed: {settings.id} has unbounded actions {space}; use clipped")
    return BoxActions(low.ravel(), high.ravel(), squashed=squashed, shape=space.shape)


def _then(name: Any, read: Read) -> Read:
    return lambda observation: read(observation[name])


def _vector(read: Read, space: Space[Any]) -> Read:
    """How a part becomes a vector of float32."""
    if isinstance(space, Box):
        shape, dtype = space.shape, kept_type(space)
        return lambda observation: fitted(read(observation), shape, dtype).ravel().astype(np.float32, copy=False)
    return lambda observation: np.asarray(spaces.flatten(space, read(observation)), np.float32)


def _concatenated(vectors: list[Read]) -> Read:
    if len(vectors) == 1:
        return vectors[0]
    return lambda observation: np.concatenate([read(observation) for read in vectors])


def _picture(read: Read, space: Box[Any], turned: Callable[[Array], Array]) -> Read:
    """How a part becomes an image with its channels first."""
    shape, dtype = space.shape, kept_type(space)
    return lambda observation: turned(fitted(read(observation), shape, dtype))


def kept_type(space: Box[Any]) -> np.dtype[Any]:
    """Bytes stay bytes, in an image to the network; everything else is float32."""
    return np.dtype(np.uint8) if space.dtype == np.uint8 else FLOAT


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


def _image(space: Box[Any]) -> tuple[Callable[[Array], Array], tuple[int, ...]]:
    """How an image gets its channels first, and its shape then."""
    shape = space.shape
    if len(shape) == 2:
        return (lambda image: image[None]), (1, *shape)
    if len(shape) == 4:
        frames, rows, columns, channels = shape
        turned = (frames * channels, rows, columns)
        return (lambda image: image.transpose(0, 3, 1, 2).reshape(turned)), turned
    if _has_channels_first(*shape):
        return (lambda image: image), shape
    return (lambda image: image.transpose(2, 0, 1)), (shape[2], shape[0], shape[1])


def _has_channels_first(first: int, middle: int, last: int) -> bool:
    if first >= min(middle, last) and middle != last:
        return False
    # The ratio of the last two is nearer to 1 than that of the first two; products have no zero to divide by.
    return max(middle, last) * min(first, middle) < max(first, middle) * min(middle, last)
