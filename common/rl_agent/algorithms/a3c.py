"""
Advantage actor-critic, asynchronous (A3C): Mnih et al. 2016, algorithm S3, with a feed-forward network or an LSTM.

Each unroll becomes one gradient of  −log π(a|s) A − β H(π(·|s)) + c ½ (R − V(s))².

Options: advantages by GAE (λ < 1) or V-trace; the clipped surrogate (Schulman et al. 2017, equation 7), with which
an unroll becomes several epochs of minibatches, one push each; self-imitation (self_imitation.py); and mirror images
(mirror_images.py). Each environment step then yields more gradients, so a few cores are enough.

While a worker collects an unroll, other workers' pushes move the weights. With two workers and 48 pushes per unroll, a
third of the steps had left the clip range before their own worker learned from them. So π₀, the policy of the weights
at the start of learning, is the denominator of the ratio. The values of the unroll come from the same weights. Each
step is weighted by min(1, π₀/μ), where μ is the behaviour policy (Hilton et al. 2022; truncated as in Espeholt et al.
2018).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from ps_common.settings import run_spec
from rl_agent.algorithms.algorithm import FollowsNothing, Loss, Prediction
from rl_agent.algorithms.mirror_images import MirrorImages
from rl_agent.algorithms.returns import Steps, lambda_returns, vtrace
from rl_agent.algorithms.self_imitation import VALUE_WEIGHT, Remembered, SelfImitation
from rl_agent.environments.spaces import Spaces, mirrored_actions
from rl_agent.networks.compatibility import check_a3c
from rl_agent.networks.flat_network import Block
from rl_agent.networks.networks import PolicyValueNetwork, policy_value_network
from rl_agent.networks.policies import ActionDistribution, policy_for
from rl_agent.networks.running_statistics import reward_unit
from rl_agent.rollouts import Decision, State, Trajectory, learner_rewards

EVALUATED_TOGETHER = 128  # observations, which fit into the cache; one of a thousand takes 2.5 times as long


@dataclass(frozen=True)
class PolicyBatch:
    """Sequences to learn from, time-major [T, N, ...]; single steps [1, N, ...] if the network has no LSTM."""

    observations: Tensor
    starts: Tensor
    actions: Tensor
    log_probabilities: Tensor  # log π₀(a|s)
    weights: Tensor  # min(1, π₀/μ)
    advantages: Tensor  # A
    value_targets: Tensor
    state: State  # before the first step


class A3C(FollowsNothing):
    """Acts by sampling its policy and learns from unrolls."""

    target_network: nn.Module | None = None
    commits_next_action = False
    learns_while_acting = False
    blocks: tuple[Block, ...] = ()
    make_network = staticmethod(policy_value_network)

    def __init__(
        self,
        network: PolicyValueNetwork,
        policy: ActionDistribution,
        settings: run_spec.A3CSettings,
        *,
        device: torch.device,
        seed: int,
    ) -> None:
        self.network = network
        self.unroll_length = settings.unroll_length
        self.discount = settings.discount
        self.gradient_clip = settings.gradient_clip
        self.learns_with_newest = settings.surrogate == "clip" or settings.off_policy == "vtrace"
        self._policy = policy
        self._settings = settings
        self._device = device
        self._random = torch.Generator(device).manual_seed(seed)
        self.entropy_weight = settings.entropy_weight
        self._mirror_images: MirrorImages | None = None
        self._imitation: SelfImitation | None = None
        if settings.imitation_weight:
            self._imitation = SelfImitation(settings.imitation_capacity, discount=settings.discount, seed=seed)

    @classmethod
    def build(
        cls,
        settings: run_spec.A3CSettings,
        run: run_spec.RunSpec,
        spaces: Spaces,
        *,
        device: torch.device,
        seed: int,
    ) -> Self:
        """The algorithm with a new network. Raises SettingsError when network or settings do not fit the spaces."""
        check_a3c(settings, run.network, spaces)
        policy = policy_for(spaces.actions, masked=spaces.observations.mask is not None)
        made = cls.make_network(settings, run.network, spaces).to(device)
        algorithm = cls(made, policy, settings, device=device, seed=seed)
        if settings.mirror_images:
            algorithm._mirror_images = MirrorImages(mirrored_actions(spaces.actions), device=device, seed=seed)
        return algorithm

    def adjust(self, settings: Any) -> None:
        assert isinstance(settings, run_spec.A3CSettings), "a run keeps its algorithm"
        self._settings = settings

    def begin_unroll(self, global_steps: int) -> None:
        self.entropy_weight = self._settings.entropy_weight_at(global_steps)

    def initial_state(self, count: int) -> State:
        return self.network.initial_state(count, self._device)

    @torch.no_grad()
    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        """Actions sampled from π, or the most probable ones if `greedy`."""
        parameters, values, state = self._forward(observations.unsqueeze(0), state, starts.unsqueeze(0))
        actions = self._policy.mode(parameters) if greedy else self._policy.sample(parameters, self._random)
        logs = self._policy.log_probability(parameters, actions)
        return Decision(actions[0], state, {"values": values[0], "log_probabilities": logs[0]})

    @torch.no_grad()
    def predict(self, observations: Tensor, state: State, starts: Tensor) -> Prediction:
        """V(s) and π(·|s)."""
        parameters, values, _ = self._forward(observations.unsqueeze(0), state, starts.unsqueeze(0))
        return Prediction(values[0].cpu(), *self._policy.chances(parameters[0].cpu()))

    def batches(self, trajectory: Trajectory) -> Iterator[PolicyBatch]:
        """The whole unroll, or shuffled minibatches of it, for each epoch."""
        settings = self._settings
        if self._imitation is not None:
            self._imitation.remember(trajectory, self._rewards(trajectory), unit=reward_unit(self.network.returns))
        for epoch in range(settings.epochs):
            if epoch == 0 or settings.off_policy == "vtrace":  # V-trace's weights depend on the current policy
                whole = self._prepared(trajectory)
            if settings.minibatches == 1:
                yield self._mirrored(whole)
                continue
            count = whole.starts.shape[1]
            order = torch.randperm(count, generator=self._random, device=self._device)
            for columns in order.tensor_split(min(settings.minibatches, count)):
                yield self._mirrored(_columns(whole, columns))

    def loss(self, batch: PolicyBatch) -> Loss:
        """The loss whose gradient is pushed."""
        settings = self._settings
        drawn = None if self._imitation is None else self._drawn(self._imitation)
        if drawn is None:
            parameters, values, _ = self.network(batch.observations, batch.state, batch.starts)
            imitation_loss = torch.zeros(())
        else:
            # One pass for both: a small batch costs nearly as much as a larger one.
            count = batch.starts.shape[1]
            seen = torch.cat([batch.observations, drawn[1].observations.unsqueeze(0)], dim=1)
            parameters, values, _ = self.network(seen, (), batch.starts)
            imitation_loss = self._imitation_loss(*drawn, parameters[0, count:], values[0, count:])
            parameters, values = parameters[:, :count], values[:, :count]
        log_probabilities = self._policy.log_probability(parameters, batch.actions)
        entropy = self._policy.entropy(parameters)
        if settings.surrogate == "clip":
            ratio = (log_probabilities - batch.log_probabilities).exp()
            clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
            policy_loss = -batch.weights * torch.minimum(ratio * batch.advantages, clipped * batch.advantages)
        else:
            policy_loss = -batch.weights * log_probabilities * batch.advantages
        value_loss = 0.5 * (batch.value_targets - values).square()
        each = policy_loss - self.entropy_weight * entropy + settings.value_weight * value_loss
        total = each.sum() if settings.loss == "sum" else each.mean()
        return Loss(
            total + settings.imitation_weight * imitation_loss,
            {
                "policy_loss": policy_loss.detach().mean(),
                "value_loss": value_loss.detach().mean(),
                "entropy": entropy.detach().mean(),
                "entropy_weight": torch.tensor(self.entropy_weight),
                "value": values.detach().mean(),
            },
        )

    def _mirrored(self, batch: PolicyBatch) -> PolicyBatch:
        if self._mirror_images is None:
            return batch
        observations, actions = self._mirror_images.of(batch.observations, batch.actions)
        return replace(batch, observations=observations, actions=actions)

    def _drawn(self, memory: SelfImitation) -> tuple[Tensor, Remembered] | None:
        """Remembered steps to imitate and their rows of the memory, if there are some."""
        drawn = memory.draw(self._settings.imitation_samples, unit=reward_unit(self.network.returns))
        if drawn is None:
            return None
        rows, steps = drawn[0], Remembered(*(part.to(self._device) for part in vars(drawn[1]).values()))
        if self._mirror_images is not None:
            observations, actions = self._mirror_images.of(steps.observations, steps.actions)
            steps = replace(steps, observations=observations, actions=actions)
        return rows, steps

    def _imitation_loss(self, rows: Tensor, steps: Remembered, parameters: Tensor, values: Tensor) -> Tensor:
        """The mean loss of remembered steps (Oh et al. 2018, equations 1 to 3), whose priorities it sets."""
        assert self._imitation is not None, "the steps are from its memory"
        advantages = (steps.returns - values).clamp(min=0)
        self._imitation.set_priorities(rows, advantages.detach().cpu())
        log_probabilities = self._policy.log_probability(parameters, steps.actions)
        each = -log_probabilities * advantages.detach() + VALUE_WEIGHT * 0.5 * advantages.square()
        return each.mean()

    def _rewards(self, trajectory: Trajectory) -> Tensor:
        return learner_rewards(trajectory.rewards, self._settings, self.network.returns)

    @torch.no_grad()
    def _prepared(self, trajectory: Trajectory) -> PolicyBatch:
        """The unroll with its advantages and value targets: as sequences, or without an LSTM as single steps."""
        settings = self._settings
        steps = Steps(self._rewards(trajectory), trajectory.discounts, trajectory.continues)
        observations = trajectory.observations.to(self._device)
        starts, actions = trajectory.starts.to(self._device), trajectory.actions.to(self._device)
        behaviour = trajectory.recorded["log_probabilities"]
        values, log_probabilities = trajectory.recorded["values"], behaviour
        if self.learns_with_newest:
            values, log_probabilities = self._evaluate_with_newest_weights(
                observations[:-1], trajectory.initial_state, starts[:-1], actions
            )
        log_ratios = log_probabilities - behaviour
        advantages, targets = self._estimates(steps, values, self._next_values(trajectory, values), log_ratios)
        if settings.normalize_advantages and advantages.numel() > 1:  # a single one has no standard deviation
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        whole = PolicyBatch(
            observations=observations[:-1],
            starts=starts[:-1],
            actions=actions,
            log_probabilities=log_probabilities.to(self._device),
            weights=log_ratios.exp().clamp(max=1.0).to(self._device),
            advantages=advantages.to(self._device),
            value_targets=targets.to(self._device),
            state=trajectory.initial_state,
        )
        return whole if trajectory.initial_state else _as_single_steps(whole)

    def _evaluate_with_newest_weights(
        self, observations: Tensor, state: State, starts: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Values and log π(a|s) [T, B] under the network's current weights."""
        parts = min(max(1, starts.numel() // EVALUATED_TOGETHER), len(starts))
        split = (tensor.tensor_split(parts) for tensor in (observations, starts, actions))
        values, log_probabilities = [], []
        for seen, started, taken in zip(*split, strict=True):
            parameters, some, state = self.network(seen, state, started)
            values.append(some.cpu())
            log_probabilities.append(self._policy.log_probability(parameters, taken).cpu())
        return torch.cat(values), torch.cat(log_probabilities)

    def _estimates(
        self, steps: Steps, values: Tensor, next_values: Tensor, log_ratios: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Advantages and value targets, [T, B]. Only V-trace uses `log_ratios`."""
        settings = self._settings
        if settings.off_policy == "vtrace":
            returns, advantages = vtrace(steps, values, next_values, log_ratios, settings.gae_lambda)
            return advantages, returns
        returns = lambda_returns(steps, next_values, settings.gae_lambda)
        return returns - values, returns

    def _next_values(self, trajectory: Trajectory, values: Tensor) -> Tensor:
        """[T, B]: the value of the observation after each step. The final state of the unroll is left unchanged."""
        _, last, _ = self._forward(trajectory.observations[-1:], trajectory.final_state, trajectory.starts[-1:])
        next_values = torch.cat([values[1:], last.cpu()])
        for cut_off in trajectory.cut_offs:
            starts = torch.zeros(1, len(cut_off.rows), dtype=torch.bool)
            _, last, _ = self._forward(cut_off.observations.unsqueeze(0), cut_off.state, starts)
            next_values[cut_off.t, cut_off.rows] = last[0].cpu()
        return next_values

    def _forward(self, observations: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        parameters, values, after = self.network(observations.to(self._device), state, starts.to(self._device))
        return parameters, values, after


def _as_single_steps(whole: PolicyBatch) -> PolicyBatch:
    """[T, B, ...] → [1, T · B, ...]"""
    return _changed(whole, lambda tensor: tensor.flatten(0, 1).unsqueeze(0), state=())


def _columns(whole: PolicyBatch, columns: Tensor) -> PolicyBatch:
    # index_select copies whole rows; indexing with brackets copies byte by byte.
    state = tuple(part.index_select(0, columns) for part in whole.state)
    return _changed(whole, lambda tensor: tensor.index_select(1, columns), state=state)


def _changed(batch: PolicyBatch, change: Callable[[Tensor], Tensor], *, state: State) -> PolicyBatch:
    """A batch with `change` applied to every tensor, and the given state."""
    return PolicyBatch(**{name: change(value) for name, value in vars(batch).items() if name != "state"}, state=state)
