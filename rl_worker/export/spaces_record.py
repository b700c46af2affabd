"""The spaces of a policy as plain values, so that an exported policy needs no environment to be built."""

from dataclasses import dataclass
from typing import Any

import numpy as np

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
    observations, actions = spaces.observations, spaces.actions
    parts = [
        {"kind": part.kind, "shape": list(part.shape), "dtype": str(part.dtype), "offset": part.offset}
        for part in observations.parts
    ]
    seen = {"shape": list(observations.shape), "dtype": str(observations.dtype), "parts": parts}
    match actions:
        case DiscreteActions():
            taken: dict[str, Any] = {"kind": "discrete", "count": actions.count, "names": list(actions.names)}
        case MultiDiscreteActions():
            taken = {"kind": "multi_discrete", "counts": list(actions.counts)}
        case BoxActions():
            taken = {"kind": "box", "low": _bounds(actions.low), "high": _bounds(actions.high)}
    return {"observations": seen, "actions": taken}


def from_record(record: dict[str, Any]) -> PolicySpaces:
    """Raises KeyError, TypeError or ValueError for what `to_record` cannot have written."""
    seen, taken = record["observations"], record["actions"]
    parts = tuple(
        Part(part["kind"], tuple(part["shape"]), np.dtype(part["dtype"]), part["offset"]) for part in seen["parts"]
    )
    observations = ObservationSpace(tuple(seen["shape"]), np.dtype(seen["dtype"]), parts)
    match taken["kind"]:
        case "discrete":
            return PolicySpaces(observations, DiscreteActions(taken["count"], tuple(taken["names"])))
        case "multi_discrete":
            return PolicySpaces(observations, MultiDiscreteActions(tuple(taken["counts"])))
        case "box":
            low, high = _array(taken["low"], -np.inf), _array(taken["high"], np.inf)
            return PolicySpaces(observations, BoxActions(low, high))
    raise ValueError(f"actions of kind {taken['kind']}")


def _bounds(values: Any) -> list[float | None]:
    """JSON has no infinity: None is no bound."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _array(bounds: list[float | None], missing: float) -> Any:
    return np.array([missing if bound is None else bound for bound in bounds], np.float32)
