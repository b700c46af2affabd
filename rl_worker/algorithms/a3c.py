"""
Advantage actor-critic, asynchronous (A3C): Mnih et al. 2016, algorithm S3.

Each unroll becomes one gradient of  −log π(a|s) A − β H(π(·|s)) + c ½ (R − V(s))².

With `surrogate = "clip"` it becomes a few epochs of minibatches of the clipped ratio (Schulman et al. 2017,
equation 7), each of which is one push. A gradient then costs less fresh experience, which makes few cores enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from common import run_spec
from common.schedules import linear
from rl_worker.algorithms.algorithm import Loss
from rl_worker.returns import generalized_advantages
from rl_worker.rollouts import ActionChoice, Trajectory


@dataclass(frozen=True)
class Batch:
    """Transitions to learn from, in any order; each [N] or [N, ...]."""

    observations: Tensor
    actions: Tensor
    log_probabilities: Tensor  # under the behaviour policy
    advantages: Tensor  # A
    returns: Tensor  # A + V: what the value is drawn to


class A3C:
    """Acts by sampling its policy, learns from unrolls. `network`: observations → (logits [N, A], values [N])."""

    def __init__(self, network: nn.Module, settings: run_spec.A3C, *, device: torch.device, seed: int) -> None:
        self.network = network
        self.gradient_clip = settings.gradient_clip
        self.unroll_length = settings.unroll_length
        self.discount = settings.discount
        self._settings = settings
        self._device = device
        self._random = torch.Generator(device).manual_seed(seed)

    @torch.inference_mode()
    def act(self, observations: Tensor, *, greedy: bool = False) -> ActionChoice:
        """observations [B, ...] → a choice for each, sampled from π, or its most probable action."""
        logits, values = self.network(observations.to(self._device))
        log_probabilities = logits.log_softmax(-1)
        if greedy:
            actions = log_probabilities.argmax(-1)
        else:
            actions = torch.multinomial(log_probabilities.exp(), 1, generator=self._random).squeeze(-1)
        chosen = log_probabilities.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        return ActionChoice(actions, chosen, values)

    def batches(self, trajectory: Trajectory) -> Iterator[Batch]:
        """The whole unroll once, or shuffled minibatches of it over some epochs."""
        settings = self._settings
        clip = settings.reward_clip
        rewards = trajectory.rewards.clamp(-clip, clip) if clip else trajectory.rewards
        advantages = generalized_advantages(
            rewards=rewards,
            discounts=trajectory.discounts,
            values=trajectory.values,
            next_values=trajectory.next_values,
            continues=trajectory.continues,
            gae_lambda=settings.gae_lambda,
        )
        whole = Batch(
            observations=trajectory.observations.flatten(0, 1).to(self._device),
            actions=trajectory.actions.flatten().to(self._device),
            log_probabilities=trajectory.log_probabilities.flatten().to(self._device),
            advantages=advantages.flatten().to(self._device),
            returns=(advantages + trajectory.values).flatten().to(self._device),
        )
        if settings.surrogate == "none":
            yield whole
            return
        for _ in range(settings.epochs):
            order = torch.randperm(trajectory.steps, generator=self._random, device=self._device)
            for rows in order.tensor_split(min(settings.minibatches, trajectory.steps)):
                yield Batch(*(getattr(whole, field)[rows] for field in Batch.__dataclass_fields__))

    def loss(self, batch: Batch, *, global_steps: int) -> Loss:
        """The loss whose gradient is pushed."""
        settings = self._settings
        logits, values = self.network(batch.observations)
        log_policy = logits.log_softmax(-1)
        log_probabilities = log_policy.gather(-1, batch.actions.unsqueeze(-1)).squeeze(-1)
        entropy = -(log_policy.exp() * log_policy).sum(-1)
        advantages = batch.advantages
        if settings.normalize_advantages and len(advantages) > 1:  # one alone has no deviation
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        if settings.surrogate == "clip":
            ratio = (log_probabilities - batch.log_probabilities).exp()
            clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
            policy_loss = -torch.minimum(ratio * advantages, clipped * advantages)
        else:
            policy_loss = -log_probabilities * advantages
        value_loss = 0.5 * (batch.returns - values).square()
        weight = linear(
            global_steps,
            initial=settings.entropy_weight,
            final=settings.final_entropy_weight,
            over=settings.entropy_anneal_steps,
        )
        each = policy_loss - weight * entropy + settings.value_weight * value_loss
        return Loss(
            total=each.sum() if settings.loss == "sum" else each.mean(),
            meters={
                "policy_loss": policy_loss.detach().mean(),
                "value_loss": value_loss.detach().mean(),
                "entropy": entropy.detach().mean(),
                "value": values.detach().mean(),
            },
        )
