"""
Pushes that were judged and are not applied yet: sound ones with their gradient, unsound ones with the reason.

Several that are applied as one update become their mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ps_common.protocol.tensors import Schema
from ps_server.state.guards import Denied


@dataclass(frozen=True, eq=False)
class Sound:
    """A gradient [P] to apply, and the norm of its part for weights."""

    staleness: int
    steps: int
    gradient: Tensor
    norm: float


@dataclass(frozen=True, eq=False)
class Unsound:
    """A push that is discarded."""

    staleness: int
    reason: Denied


def mean(sound: Sequence[Sound], schema: Schema) -> Sound:
    """The mean for weights, the sum for statistics, always in the order of the pushes."""
    total = torch.zeros(schema.size)
    for one in sound:
        total[: schema.weights].add_(one.gradient[: schema.weights], alpha=1 / len(sound))
        total[schema.weights :] += one.gradient[schema.weights :]
    return Sound(
        staleness=max(one.staleness for one in sound),
        steps=sum(one.steps for one in sound),
        gradient=total,
        norm=float(torch.linalg.vector_norm(total[: schema.weights])),
    )
