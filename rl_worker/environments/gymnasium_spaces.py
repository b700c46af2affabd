"""
Gymnasium's spaces as arrays: an observation of any space becomes one array; an action becomes the environment's.

- An image is a Box of rank 3, or of rank 4 with channels last, or of rank 2 unless it is small: its channels go first,
  stacked frames count as channels.
- Everything else becomes numbers in one float32 vector: discrete parts one-hot, Dict and Tuple in Gymnasium's order.
- A Dict or Tuple with images, and anything with an action mask, is packed (see spaces.py).

A mask is a key `action_mask` of a Dict observation or of `info`: 1 marks what is allowed (as in PettingZoo and in
Gymnasium's Taxi).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import NDArray

from common.errors import SettingsError
from common.settings.run_spec import Environment
from rl_worker.environments.ids import action_table
from rl_worker.environments.spaces import (
    Actions,
    ActionSpace,
    BoxActions,
    DiscreteActions,
    MultiDiscreteActions,
    ObservationSpace,
    mask_size,
    packed,
    packed_space,
    usable_mask,
)

MASK = "action_mask"
BYTES = (np.uint8, np.bool_)
FEWEST_ROWS = 8  # of an image of bytes of rank 2; smaller arrays are numbers
FEWEST_FLOAT_ROWS = 16  # likewise of floats, which more often are tables, say of a few neighbours
MOST_CHANNELS = 4  # in the last of four axes: gray, RGB, RGBA

Array = NDArray[Any]
Read = Callable[[Any], Any]  # a leaf of an observation, from the whole


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

    def native(self, actions: Actions) -> Any:
        """[B, ...] as the environment takes them."""
        return self.actions.native(actions)

    def mask(self, given: Any) -> NDArray[np.uint8]:
        """[M]: the environment's mask for the agent's actions."""
        parts = given if isinstance(given, tuple | list) else (given,)  # Gymnasium's MultiDiscrete has a tuple of masks
        mask = np.concatenate([np.asarray(part).ravel() for part in parts]).astype(np.bool_)
        size = mask_size(self.actions) if self._table is None else self._options
        if len(mask) != size:
            raise SettingsError(
                f"--environment {self.environment}: its action mask has {len(mask)} elements, and its actions {size}; "
                "with --action-mask none it is ignored"
            )
        if self._table is not None:
            mask = mask[self._table]
        return usable_mask(self.actions, mask).astype(np.uint8)


class ArrayObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows each observation as one array; `array_space` describes it."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], codec: ActionCodec, *, masks: Literal["none", "key", "info"]
    ) -> None:
        """`masks`: the place of action masks. Raises SettingsError if the observation space is not supported."""
        super().__init__(env)
        self.codec = codec
        seen: list[tuple[Read, Space[Any]]] = []
        _leaves(env.observation_space, lambda observation: observation, seen)
        if not env.observation_space.is_np_flattenable:
            space = env.observation_space
            raise SettingsError(f"--environment {codec.environment}: its observation space {space} fits no array")
        key = env.observation_space.spaces.get(MASK) if isinstance(env.observation_space, Dict) else None
        if key is not None:
            seen = [(read, space) for read, space in seen if space is not key]
        self._images = [(read, _image(space)) for read, space in seen if _is_image(space)]
        self._numbers = [(read, _flat(space)) for read, space in seen if not _is_image(space)]
        self._masks = masks if masks != "key" or key is not None else "none"
        numbers = sum(spaces.flatdim(space) for _, space in seen if not _is_image(space))
        self.array_space = self._space(numbers)
        # Most environments show a vector as it is: then nothing is done in their steps.
        is_vector = isinstance(env.observation_space, Box) and env.observation_space.shape == (numbers,)
        self.is_shown_as_it_is = is_vector and not self.array_space.parts
        high = 255 if self.array_space.dtype == np.uint8 else np.inf
        low = 0 if self.array_space.dtype == np.uint8 else -np.inf
        self.observation_space = Box(low, high, self.array_space.shape, self.array_space.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self.array(observation, info), info

    def step(self, action: Any) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.array(observation, info), reward, terminated, truncated, info

    def _space(self, numbers: int) -> ObservationSpace:
        images = [(shape, dtype) for _, (_, shape, dtype) in self._images]
        if self._masks == "none" and not (images and (numbers or len(images) > 1)):
            shape, dtype = images[0] if images else ((numbers,), np.float32)
            return ObservationSpace(shape, np.dtype(dtype))
        parts: list[tuple[Literal["image", "vector", "mask"], tuple[int, ...], Any]] = []
        if numbers:
            parts.append(("vector", (numbers,), np.float32))
        parts += [("image", shape, dtype) for shape, dtype in images]
        if self._masks != "none":
            parts.append(("mask", (mask_size(self.codec.actions),), np.uint8))
        return packed_space(parts)

    def array(self, observation: Any, info: dict[str, Any]) -> Array:
        """The array of one observation."""
        if self.is_shown_as_it_is:
            shown: Array = observation  # the vector environment's float32 array takes any type of numbers
            return shown
        space = self.array_space
        arrays: list[Array] = [
            turned(read(observation)).astype(dtype, copy=False) for read, (turned, _, dtype) in self._images
        ]
        if self._numbers:
            flat = [flatten(read(observation)) for read, flatten in self._numbers]
            numbers = flat[0] if len(flat) == 1 else np.concatenate(flat)
            arrays.insert(0, numbers.astype(np.float32, copy=False))
        if not space.parts:
            return arrays[0]
        if self._masks != "none":
            arrays.append(self.codec.mask(observation[MASK] if self._masks == "key" else info[MASK]))
        return packed(space, arrays)


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
    if squashed and not space.is_bounded():
        raise SettingsError(f"--box-actions squashed: {settings.id} has unbounded actions {space}; use clipped")
    return BoxActions(space.low.ravel(), space.high.ravel(), squashed=squashed, shape=space.shape)


def _leaves(space: Space[Any], read: Read, found: list[tuple[Read, Space[Any]]]) -> None:
    """Append each part of a space that is no Dict or Tuple, with how it is read from the whole observation."""
    if isinstance(space, Dict | Tuple):
        named = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for name, part in named:
            _leaves(part, _then(read, name), found)
        return
    found.append((read, space))


def _then(read: Read, name: Any) -> Read:
    return lambda observation: read(observation)[name]


def _flat(space: Space[Any]) -> Callable[[Any], Array]:
    """An observation of the space as a vector."""
    if isinstance(space, Box):
        return np.ravel
    flatten: Callable[[Any], Any] = partial(spaces.flatten, space)
    return flatten


def _is_image(space: Space[Any]) -> bool:
    if not isinstance(space, Box):
        return False
    match len(space.shape):
        case 2:
            return min(space.shape) >= (FEWEST_ROWS if space.dtype in BYTES else FEWEST_FLOAT_ROWS)
        case 4:
            return space.shape[3] <= MOST_CHANNELS
        case rank:
            return rank == 3


def _image(space: Space[Any]) -> tuple[Callable[[Array], Array], tuple[int, ...], type]:
    """How an image gets its channels first, its shape then, and its type."""
    assert space.shape is not None, "of a Box"
    dtype = np.uint8 if space.dtype == np.uint8 else np.float32
    shape = space.shape
    if len(shape) == 2:
        return (lambda image: image[None]), (1, *shape), dtype
    if len(shape) == 4:
        frames, rows, columns, channels = shape
        turned = (frames * channels, rows, columns)
        return (lambda image: image.transpose(0, 3, 1, 2).reshape(turned)), turned, dtype
    if shape[2] <= min(shape[:2]):
        return (lambda image: image.transpose(2, 0, 1)), (shape[2], shape[0], shape[1]), dtype
    return (lambda image: image), shape, dtype
