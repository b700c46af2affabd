"""
Returns and advantages: pure functions over time-major tensors [T, B].

A transition ends in one of three ways, and they are kept apart. Terminated: nothing follows, the discount is 0.
Truncated: the episode was cut off, its last observation still has a value. Neither: the next step belongs to it.
"""

import torch
from torch import Tensor


def generalized_advantages(
    *, rewards: Tensor, discounts: Tensor, values: Tensor, next_values: Tensor, continues: Tensor, gae_lambda: float
) -> Tensor:
    """
    A[t] = δ[t] + d[t] λ c[t] A[t+1],  δ[t] = r[t] + d[t] V'[t] − V[t]         Schulman et al. 2016, equation 16

    rewards r, values V: [T, B]. discounts d: γ, or 0 where the step terminated its episode.
    next_values V': the value of the observation after the step; where the step truncated its episode, of the last
    observation of that episode (not of the first of the next one).
    continues c: 0 where the step was the last of its episode for any reason, else 1.
    Returns [T, B]. With λ = 1 and no end inside, A + V is the n-step return of Mnih et al. 2016.
    """
    errors = rewards + discounts * next_values - values
    decays = discounts * continues * gae_lambda
    advantages = torch.empty_like(errors)
    following = torch.zeros_like(errors[0])
    for t in reversed(range(len(errors))):
        following = advantages[t] = errors[t] + decays[t] * following
    return advantages
