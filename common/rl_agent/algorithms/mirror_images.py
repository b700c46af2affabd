"""
Mirror images: where a game is the same in a mirror, with LEFT and RIGHT exchanged, each step is the experience of two.

The mirrored step was taken by the mirrored policy, with the same probability, and led to the same return. So only the
image and the action change; probabilities, advantages and value targets are those of the step. (Silver et al. 2016 use
the symmetries of Go in this way.)
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class MirrorImages:
    """Shows a random half of all steps in a mirror."""

    def __init__(self, mirrored_actions: Sequence[int], *, device: torch.device, seed: int) -> None:
        """`mirrored_actions` has the mirror image of each action."""
        self._actions = torch.tensor(mirrored_actions, device=device)
        self._random = torch.Generator(device).manual_seed(seed)

    def of(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Images [..., C, H, W] and actions [...], of which each step is mirrored with probability ½."""
        chosen = torch.rand(actions.shape, generator=self._random, device=actions.device) < 0.5
        images = torch.where(chosen[..., None, None, None], observations.flip(-1), observations)
        return images, torch.where(chosen, self._actions[actions], actions)
