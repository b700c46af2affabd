"""
Soft actor-critic (Haarnoja et al. 2018b) with a learned temperature, for actions of real numbers.

    y   = r + γ (min_i Q_i(s', a'; θ⁻) − α log π(a'|s')),   a' ~ π(·|s')
    L_Q = Σ_i ½ (Q_i(s, a) − y)²
    L_π = α log π(ã|s) − min_i Q_i(s, ã),                    ã ~ π(·|s), reparameterized
    L_α = −log α (log π(ã|s) + H̄)

The three losses are added: each reaches only its own parameters. π is a Gaussian whose samples u pass through a tanh,
with log π(a|s) = log N(u) − Σ log(1 − tanh² u) (appendix C); the tanh is scaled to the bounds of the actions.

The target critics θ⁻ belong to the worker. Each version of the weights moves them by τ: a worker that sees every second
version moves them by 1 − (1 − τ)². So the targets of W workers follow the weights as those of one worker do.
"""

import math
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ps_common.settings.run_spec import Replay, RunSpec, SacSettings
from rl_agent.algorithms.algorithm import Loaded, Loss, Prediction
from rl_agent.algorithms.replayed import ReplayedUpdates
from rl_agent.environments.spaces import BoxActions, Spaces
from rl_agent.networks.flat_network import Block, move_towards
from rl_agent.networks.soft_actor_critic import (
    Critics,
    SoftActorCriticNetwork,
    SquashedPolicy,
    soft_actor_critic_network,
)
from rl_agent.replay.replay_memory import Drawn
from rl_agent.rollouts import Decision, State, Trajectory

POLICY, TEMPERATURE, CRITICS = "policy", "temperature", "critics"  # names of blocks


class Sac:
    """Acts by sampling its policy, and learns from remembered steps."""

    target_network: nn.Module | None = None  # its targets are its own
    commits_next_action = False
    learns_with_newest = False
    learns_while_acting = True
    make_network = staticmethod(soft_actor_critic_network)

    def __init__(
        self,
        network: SoftActorCriticNetwork,
        acting: SquashedPolicy,
        target: Critics,
        actions: BoxActions,
        settings: SacSettings,
        replay: Replay,
        *,
        frames: int = 1,
        device: torch.device,
        seed: int,
    ) -> None:
        self.network = network
        self.unroll_length = settings.unroll_length
        self.discount = settings.discount
        self.gradient_clip = settings.gradient_clip
        self.replay = ReplayedUpdates(replay, frames=frames, seed=seed)
        self._settings = settings
        self._actions = actions
        self._low, self._high = (torch.from_numpy(bound) for bound in actions.finite_bounds())
        self._device = device
        self._random = torch.Generator(device).manual_seed(seed)
        # An unroll is collected in another thread than that which learns.
        self._acting = acting.requires_grad_(False)
        self._acting_random = torch.Generator(device).manual_seed(seed + 1)
        self._numpy_random = np.random.default_rng(seed)
        self._target = target.requires_grad_(False)
        self._warms_up = True
        self._followed: int | None = None  # the version of the weights that the targets have followed so far
        self._updates = 0
        self._of_policy: dict[str, Tensor] = {}  # meters of its last update

    @classmethod
    def build(cls, settings: SacSettings, run: RunSpec, spaces: Spaces, *, device: torch.device, seed: int) -> Self:
        """The algorithm with a new network, for spaces that check_algorithm accepts."""
        actions = spaces.actions
        assert isinstance(actions, BoxActions), "check_algorithm refuses others"
        network = cls.make_network(settings, run.network, spaces)
        # Built, and not copied: a torso of the user may hold what cannot be copied.
        others = cls.make_network(settings, run.network, spaces).to(device).eval()
        built = cls(
            network.to(device), others.policy, others.critics, actions, settings, run.replay,
            frames=spaces.observations.frames, device=device, seed=seed,
        )  # fmt: skip
        built._warms_up = not run.start_from  # a trained policy plays better than chance
        return built

    @property
    def blocks(self) -> tuple[Block, ...]:
        """None where all parameters move alike."""
        policy, temperature = self._settings.actor_rate, self._settings.temperature_rate
        if (policy, temperature, self._settings.policy_every) == (1, 1, 1):
            return ()
        return (
            Block(POLICY, ("policy.",), learning_rate=policy),
            Block(TEMPERATURE, ("log_temperature",), learning_rate=temperature),
            Block(CRITICS, ("critics.",)),
        )

    def adjust(self, settings: Any) -> None:
        assert isinstance(settings, SacSettings), "a run keeps its algorithm"
        self._settings = settings

    def begin_evaluation(self) -> None:
        """Sample the policy from now on, also before learning starts: what is evaluated is not the warm-up."""
        self._warms_up = False

    def begin_unroll(self, global_steps: int) -> None:
        self.replay.global_steps = global_steps
        move_towards(self._acting, self.network.policy)

    def loaded(self, loaded: Loaded) -> None:
        """The network has these weights now: the target critics follow, or begin with them."""
        before, self._followed = self._followed, loaded.version
        begins = before is None or loaded.went_back
        share = 1.0 if begins else 1 - (1 - self._settings.target_rate) ** (loaded.version - (before or 0))
        move_towards(self._target, self.network.critics, share)

    def initial_state(self, count: int) -> State:
        return ()

    @torch.no_grad()
    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        """Actions sampled from π, or its mean ones if `greedy`; random ones before learning starts."""
        if not greedy and self._warms_up and self.replay.explores_at_random:
            part = self._acting.mask
            mask = None if part is None else part.of(observations.numpy()).astype(np.bool_)
            random = self._actions.sample(self._numpy_random, len(observations), mask)
            return Decision(torch.from_numpy(random), (), {})
        mean, log_deviation, allowed = self._acting.distribution(observations.to(self._device))
        before = mean if greedy else mean + log_deviation.exp() * self._noise(mean, self._acting_random)
        return Decision(self._chosen(before, allowed), (), {})

    @torch.no_grad()
    def predict(self, observations: Tensor, state: State, starts: Tensor) -> Prediction:
        """The smallest Q of the mean action, and the Gaussian before the tanh."""
        seen = observations.to(self._device)
        mean, log_deviation, mask = self.network.policy.distribution(seen)
        allowed = torch.ones_like(mean) if mask is None else mask
        gaussian = (mean * allowed).cpu(), (log_deviation.exp() * allowed).cpu()
        values = self.network.critics(seen, mean.tanh() * allowed).amin(0).cpu()
        return Prediction(values, None, gaussian=gaussian, is_squashed=True)

    def batches(self, trajectory: Trajectory) -> Iterator[Drawn]:
        """Remember an unroll; then the batches that are due."""
        return self.replay.batches(trajectory, self._settings, self.network.returns)

    def loss(self, drawn: Drawn) -> Loss:
        """The sum of the three losses of a batch; only that of the critics where the policy's turn has not come."""
        network = self.network
        seen, rewards = drawn.observations.to(self._device), drawn.rewards.to(self._device)
        taken = self._unit(drawn.actions.to(self._device))
        temperature = network.log_temperature.detach().exp()
        targets = rewards + drawn.discounts.to(self._device) * self._values_after(drawn, temperature)
        values = network.critics(seen, taken)
        errors = values - targets
        critic_loss = (0.5 * drawn.weights.to(self._device) * errors.square()).sum(0).mean()

        self.replay.learned(drawn, errors.detach().abs().mean(0))
        self._updates += 1
        total, moves_all = critic_loss, self._updates % self._settings.policy_every == 0
        if moves_all:
            total = total + self._policy_losses(seen, temperature)
        meters = {"value_loss": critic_loss.detach(), "temperature": temperature, "value": values.detach().mean()}
        return Loss(total, self._of_policy | meters | self.replay.meters(drawn), () if moves_all else (CRITICS,))

    def _policy_losses(self, seen: Tensor, temperature: Tensor) -> Tensor:
        """The losses of policy and temperature for these observations."""
        network, wanted = self.network, self._settings.target_entropy
        actions, logs = self._sampled(seen)
        policy_loss = (temperature * logs - network.critics(seen, actions, fixed=True).amin(0)).mean()
        wanted = -float(len(self._low)) if wanted is None else wanted
        self._of_policy = {"policy_loss": policy_loss.detach(), "entropy": -logs.detach().mean()}
        losses: Tensor = policy_loss - network.log_temperature * (logs.detach().mean() + wanted)
        return losses

    @torch.no_grad()
    def _values_after(self, drawn: Drawn, temperature: Tensor) -> Tensor:
        """[N]: the soft value of the next observations, by the target critics."""
        after = drawn.next_observations.to(self._device)
        actions, logs = self._sampled(after)
        values: Tensor = self._target(after, actions)
        if subset := self._settings.critic_subset:
            chosen = torch.randperm(len(values), generator=self._random, device=self._device)[:subset]
            values = values[chosen]
        return values.amin(0) - temperature * logs

    def _sampled(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [B, A] in [−1, 1] sampled from π, with gradients, and log π [B] of them."""
        mean, log_deviation, mask = self.network.policy.distribution(observations)
        noise = self._noise(mean, self._random)
        before = mean + log_deviation.exp() * noise
        # log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u)), which is finite for any u.
        logs = -0.5 * noise.square() - log_deviation - 0.5 * math.log(2 * math.pi)
        logs = logs - 2 * (math.log(2) - before - functional.softplus(-2 * before))
        actions = before.tanh()
        if mask is not None:
            actions, logs = actions * mask, logs * mask
        return actions, logs.sum(-1)

    def _noise(self, like: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randn(like.shape, generator=generator, device=self._device, dtype=like.dtype)

    def _chosen(self, before: Tensor, mask: Tensor | None) -> Tensor:
        """The agent's actions [B, A], within the bounds, of these, which the tanh has still to squash."""
        unit = before.tanh() if mask is None else before.tanh() * mask
        chosen = torch.lerp(self._low, self._high, (unit.cpu() + 1) / 2)
        return chosen if mask is None else chosen * mask.cpu()

    def _unit(self, actions: Tensor) -> Tensor:
        """[B, A] in [−1, 1], of the agent's actions."""
        low, high = self._low.to(self._device), self._high.to(self._device)
        return ((actions - low) / (high - low).clamp_min(1e-12) * 2 - 1).clamp(-1, 1)
