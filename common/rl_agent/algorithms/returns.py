"""
Returns and advantages: pure functions over time-major tensors [T, B].

A transition ends in one of three ways. The return ends: nothing that follows counts, and the discount is 0. Truncated:
the episode was cut off, and its last observation still has a value. Neither: the next step belongs to the same return.
A return ends where a step terminates its episode; with --life-loss-ends-episode also where a life is lost, and with
--reward-ends-episode where there is a reward.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Steps:
    """T steps of B environments; each tensor is [T, B]."""

    rewards: Tensor  # r
    discounts: Tensor  # d: γ, or 0 where the step ended its return
    continues: Tensor  # c: 0 where the step ended its return, or was the last of its episode for any reason; else 1


def lambda_returns(steps: Steps, next_values: Tensor, lambda_: float) -> Tensor:
    """
    G[t] = r[t] + d[t] ((1 − λ c[t]) V'[t] + λ c[t] G[t+1]),  G[T−1] = r + d V'

    next_values V' [T, B]: the value of the observation after the step; where the step truncated its episode, of the
    last observation of that episode (not of the first of the next one).
    Returns [T, B]. λ = 0 gives one-step targets, λ = 1 the n-step returns of Mnih et al. 2016 (R of algorithms S2 and
    S3), and G − V the advantages of Schulman et al. 2016, equation 16.
    """
    returns = torch.empty_like(steps.rewards)
    following = next_values[-1]
    for t in reversed(range(len(returns))):
        mix = lambda_ * steps.continues[t]
        following = returns[t] = steps.rewards[t] + steps.discounts[t] * torch.lerp(next_values[t], following, mix)
    return returns


def vtrace(
    steps: Steps, values: Tensor, next_values: Tensor, log_ratios: Tensor, lambda_: float
) -> tuple[Tensor, Tensor]:
    """
    V-trace (Espeholt et al. 2018, equation 1, with both truncation levels at 1): value targets and advantages, [T, B].

    log_ratios: log π(a|s) − log μ(a|s) of the learner's policy π and the behaviour policy μ. With equal policies the
    targets are the λ-returns. The advantages are not yet weighted by min(1, π/μ): a policy gradient needs that factor,
    a surrogate contains the ratio itself.
    """
    weights = log_ratios.exp().clamp(max=1.0)
    errors = weights * (steps.rewards + steps.discounts * next_values - values)
    corrections = torch.empty_like(errors)  # vs − V
    following = torch.zeros_like(errors[0])
    decays = steps.discounts * steps.continues * weights * lambda_
    for t in reversed(range(len(errors))):
        following = corrections[t] = errors[t] + decays[t] * following
    after = torch.cat([corrections[1:], torch.zeros_like(corrections[:1])])
    next_targets = next_values + steps.continues * lambda_ * after
    return values + corrections, steps.rewards + steps.discounts * next_targets - values
