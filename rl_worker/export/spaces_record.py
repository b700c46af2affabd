"""The spaces of a policy as plain values, so that an exported policy needs no environment to be built."""

from dataclasses import dataclass
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


def to_record(spaces: Spaces) -> dict[str, Any]:
    """Plain values, as JSON takes them."""
    observations = spaces.observations
    parts = [
        {"kind": part.kind, "shape": list(part.shape), "dtype": str(part.dtype), "offset": part.offset}
        for part in observations.parts
    ]
    seen = {"shape": list(observations.shape), "dtype": str(observations.dtype), "parts": parts}
    return {"observations": seen, "actions": _action_record(spaces.actions)}


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
    return PolicySpaces(observations, _recorded_actions(record["actions"], settings))


def _action_record(actions: ActionSpace) -> dict[str, Any]:
    match actions:
        case DiscreteActions():
            numbers = range(actions.count) if actions.numbers is None else actions.numbers.tolist()
            return {"kind": "discrete", "count": actions.count, "names": list(actions.names), "numbers": list(numbers)}
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
            numbers = taken.get("numbers", settings.actions or range(taken["count"]))
            return DiscreteActions(taken["count"], tuple(taken["names"]), np.array(numbers, np.int64))
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
