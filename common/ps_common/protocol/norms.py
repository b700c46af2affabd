"""The largest norm and sum that a vector may have, and the norm by which servers and workers judge one."""

import torch
from torch import Tensor

# A norm of weights or their gradient that no sane training produces; float32 squares overflow not far above it.
ABSURD_NORM = 1e12
# A sum of observations or rewards, or of their squares, that leaves float32 no room to add up a run of such pushes.
ABSURD_STATISTIC = 1e30


def norm_of(vector: Tensor, weights: int) -> float:
    """The Euclidean norm of the first `weights` elements; infinite or NaN if a statistic among the others is absurd."""
    statistics = vector[weights:]
    greatest = float(statistics.abs().max()) if len(statistics) else 0.0
    if not greatest <= ABSURD_STATISTIC:  # NaN is not
        return greatest * torch.inf
    return float(torch.linalg.vector_norm(vector[:weights]))
