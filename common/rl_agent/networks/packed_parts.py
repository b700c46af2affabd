"""Parts of packed observations as tensors: views of the rows, without copies."""

import numpy as np
import torch
from torch import Tensor

from rl_agent.environments.spaces import Part


def part_of(packed: Tensor, part: Part) -> Tensor:
    """[..., bytes] → [..., *part.shape] of the part's dtype."""
    rows = packed[..., part.offset : part.end]
    if part.dtype == np.float32:
        rows = rows.view(torch.float32)
    return rows.reshape(*rows.shape[:-1], *part.shape)
