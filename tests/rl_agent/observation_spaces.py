"""Observation spaces of tests."""

import numpy as np

from rl_agent.environments.spaces import ObservationSpace


def numbers(*shape: int) -> ObservationSpace:
    """Of float32."""
    return ObservationSpace(shape, np.dtype(np.float32))


def pixels(*shape: int) -> ObservationSpace:
    """Of bytes."""
    return ObservationSpace(shape, np.dtype(np.uint8))
