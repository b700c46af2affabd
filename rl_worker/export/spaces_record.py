"""The spaces of a policy as plain values, so that an exported policy needs no environment to be built."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.settings.run_spec import Environment
from rl_worker.environments.spaces import (
    ActionSpace,
    BoxActions,
    DiscreteActions,
    MultiDiscreteActions,
    ObservationSpace,
    Part,
    Spaces,
)


@dataclass(frozen=True)
class PolicySpaces:
    """The spaces of an agent without its environment."""

    observations: ObservationSpace
    actions: ActionSpace


def with_numbers(spaces: Spaces, settings: Environment) -> PolicySpaces:
    """
    The spaces, whose discrete actions have the environment's numbers.

    ALE's, ViZDoom's and those of older files do not say them: they are those of --actions, or all.
    """
    actions = spaces.actions
    if isinstance(actions, DiscreteActions) and actions.numbers is None:
        numbers = settings.actions or range(actions.count)
        actions = replace(actions, numbers=np.array(numbers, np.int64))
    return PolicySpaces(spaces.observations, actions)


def to_record(spaces: Spaces, settings: Environment) -> dict[str, Any]:
    """Plain values, as JSON takes them, for the spaces of a run with these settings."""
    observations, actions = spaces.observations, with_numbers(spaces, settings).actions
    parts = [
        {"kind": part.kind, "shape": list(part.shape), "dtype": str(part.dtype), "offset": part.offset}
        for part in observations.parts
    ]
    seen = {"shape": list(observations.shape), "dtype": str(observations.dtype), "parts": parts}
    return {"observations": seen, "actions": _action_record(actions)}


def from_record(record: dict[str, Any], settings: Environment) -> PolicySpaces:
    """
    The spaces of a run with these settings, which say what the files of older versions leave out.

    Raises KeyError, TypeError or ValueError for what `to_record` cannot have written.
    """
    seen = record["observations"]
    parts = tuple(
        Part(part["kind"], tuple(part["shape"]), np.dtype(part["dtype"]), part["offset"]) for part in seen["parts"]
    )
    observations = ObservationSpace(tuple(seen["shape"]), np.dtype(seen["dtype"]), parts)
    return with_numbers(PolicySpaces(observations, _recorded_actions(record["actions"], settings)), settings)


def _action_record(actions: ActionSpace) -> dict[str, Any]:
    match actions:
        case DiscreteActions():
            assert actions.numbers is not None, "with_numbers has said them"
            named = {"count": actions.count, "names": list(actions.names)}
            return {"kind": "discrete", **named, "numbers": actions.numbers.tolist()}
        case MultiDiscreteActions():
            size = len(actions.counts)
            choices = {"counts": list(actions.counts), "starts": list(actions.starts or (0,) * size)}
            taken = {"shape": _shape(actions.shape, size), "dtype": str(actions.dtype)}
            return {"kind": "multi_discrete", **choices, **taken}
        case BoxActions():
            bounds = {"low": _bounds(actions.low), "high": _bounds(actions.high), "squashed": actions.squashed}
            taken = {"shape": _shape(actions.shape, len(actions.low)), "dtype": str(actions.low.dtype)}
            return {"kind": "box", **bounds, **taken}


def _recorded_actions(taken: dict[str, Any], settings: Environment) -> ActionSpace:
    shape = tuple(taken["shape"]) if "shape" in taken else None
    match taken["kind"]:
        case "discrete":
            numbers = np.array(taken["numbers"], np.int64) if "numbers" in taken else None
            return DiscreteActions(taken["count"], tuple(taken["names"]), numbers)
        case "multi_discrete":
            dtype = np.dtype(taken.get("dtype", "int64"))
            return MultiDiscreteActions(tuple(taken["counts"]), tuple(taken.get("starts", ())), shape, dtype)
        case "box":
            dtype = np.dtype(taken.get("dtype", "float32"))
            low, high = _array(taken["low"], -np.inf, dtype), _array(taken["high"], np.inf, dtype)
            return BoxActions(low, high, taken.get("squashed", settings.box_actions == "squashed"), shape)
    raise ValueError(f"actions of kind {taken['kind']}")


def _shape(shape: tuple[int, ...] | None, size: int) -> list[int]:
    return [size] if shape is None else list(shape)


def _bounds(values: Any) -> list[float | None]:
    """JSON has no infinity: None is no bound."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _array(bounds: list[float | None], missing: float, dtype: np.dtype[Any]) -> Any:
    return np.array([missing if bound is None else bound for bound in bounds], dtype)
