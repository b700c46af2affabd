"""
ε-greedy exploration, for the methods that learn action values.

Mnih et al. 2016, section 8: each worker draws its final ε from {0.1, 0.01, 0.5} with probabilities {0.4, 0.3, 0.3} and
anneals from 1. Here every environment has its own ε, since one worker steps many. ε is annealed on the global step
counter T, so that a worker that joins late does not start at ε = 1.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ps_common.schedules import linear
from rl_agent.networks.policies import FORBIDDEN

EVALUATION_EPSILON = 0.05  # of games that are scored; as in Mnih et al. 2015


class EpsilonSchedule:
    """The ε of `count` environments as functions of T."""

    def __init__(
        self,
        count: int,
        finals: Sequence[float],
        probabilities: Sequence[float],
        *,
        anneal_steps: int,
        redraw_steps: int,
        generator: torch.Generator,
    ) -> None:
        """Every `redraw_steps` global steps all environments draw a new final ε; 0: never."""
        self.count = count
        self._finals = torch.tensor(finals)
        self._probabilities = torch.tensor(probabilities)
        self._anneal_steps = anneal_steps
        self._redraw_steps = redraw_steps
        self._generator = generator
        self._drawn = self._draw()
        self._drawing = 0  # the number of redraws so far

    def at(self, global_steps: int) -> Tensor:
        """[B]: each environment's probability of a random action."""
        drawing = global_steps // self._redraw_steps if self._redraw_steps else 0
        if drawing != self._drawing:
            self._drawn, self._drawing = self._draw(), drawing
        chance = linear(global_steps, initial=1.0, final=0.0, over=self._anneal_steps) if self._anneal_steps else 0.0
        return torch.lerp(self._drawn, torch.ones(self.count), chance)

    def _draw(self) -> Tensor:
        rows = torch.multinomial(self._probabilities, self.count, replacement=True, generator=self._generator)
        return self._finals[rows]


def epsilon_greedy(values: Tensor, epsilons: Tensor, generator: torch.Generator) -> Tensor:
    """values Q [B, A], epsilons [B] → actions [B]: with probability ε any that is allowed, otherwise the best."""
    best = values.argmax(-1)
    chance = torch.rand(best.shape, generator=generator) < epsilons
    allowed = values > FORBIDDEN
    if allowed.all():
        anything = torch.randint(values.shape[-1], best.shape, generator=generator)
    else:
        anything = torch.multinomial(allowed.float(), 1, generator=generator).squeeze(-1)
    return torch.where(chance, anything, best)
