"""
Pong by PPO on EnvPool: `envpool_ppo.py ppo --rows FILE`. The settings are those of CleanRL's ppo_atari_envpool.py, the
code is written anew.
"""

import sys

import envpool
import numpy as np
import torch
from peer_program import Rows, parse
from torch import Tensor, nn

STEPS = 10_000_000  # over which the learning rate falls to 0
ENVIRONMENTS, UNROLL, EPOCHS, BATCH = 8, 128, 4, 256
LEARNING_RATE, CLIP, DISCOUNT, LAMBDA = 2.5e-4, 0.1, 0.99, 0.95
VALUE_WEIGHT, ENTROPY_WEIGHT, GRADIENT_CLIP = 0.5, 0.01, 0.5


def orthogonal(layer: nn.Conv2d | nn.Linear, gain: float = 2**0.5) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Network(nn.Module):
    """The network of Mnih et al. 2015 with a policy and a value."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self._torso = nn.Sequential(
            orthogonal(nn.Conv2d(4, 32, 8, 4)),
            nn.ReLU(),
            orthogonal(nn.Conv2d(32, 64, 4, 2)),
            nn.ReLU(),
            orthogonal(nn.Conv2d(64, 64, 3)),
            nn.ReLU(),
            nn.Flatten(),
            orthogonal(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
        )
        self._policy = orthogonal(nn.Linear(512, actions), 0.01)
        self._value = orthogonal(nn.Linear(512, 1), 1.0)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities [B, A] and values [B] of frames, uint8 [B, 4, 84, 84]."""
        features = self._torso(frames / 255.0)
        return self._policy(features).log_softmax(-1), self._value(features).squeeze(-1)


class Games:
    """Eight games and what was played last, [T, B]."""

    def __init__(self, rows: Rows, *, sticky: float, seed: int, threads: int) -> None:
        self._games = envpool.make(
            "Pong-v5",
            env_type="gymnasium",
            num_envs=ENVIRONMENTS,
            num_threads=threads,
            seed=seed,
            episodic_life=True,
            reward_clip=True,
            repeat_action_probability=sticky,
        )
        self.actions_count = int(self._games.action_space.n)
        self._rows = rows
        self._returns = np.zeros(ENVIRONMENTS)
        shape = (UNROLL, ENVIRONMENTS)
        self.frames = torch.zeros((*shape, 4, 84, 84), dtype=torch.uint8)
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.log_probabilities, self.values, self.rewards, self.ends = (torch.zeros(shape) for _ in range(4))
        self.next = torch.from_numpy(self._games.reset()[0])

    @torch.no_grad()
    def play(self, network: Network) -> None:
        for step in range(UNROLL):
            log_policy, self.values[step] = network(self.next)
            actions = torch.multinomial(log_policy.exp(), 1)
            self.frames[step], self.actions[step] = self.next, actions[:, 0]
            self.log_probabilities[step] = log_policy.gather(1, actions)[:, 0]
            self._step(step, actions[:, 0].numpy().astype(np.int32))

    def _step(self, step: int, actions: np.ndarray) -> None:
        frames, rewards, terminated, truncated, info = self._games.step(actions)
        self.next = torch.from_numpy(frames)
        self.rewards[step] = torch.from_numpy(rewards)
        self.ends[step] = torch.from_numpy((terminated | truncated).astype(np.float32))
        self._returns += info["reward"]
        for game in np.flatnonzero(info["terminated"] | truncated):
            self._rows.add_game(self._returns[game])
            self._returns[game] = 0.0

    @torch.no_grad()
    def advantages(self, network: Network) -> Tensor:
        """Generalised advantages (Schulman et al. 2016), [T, B]."""
        advantages = torch.zeros_like(self.rewards)
        value, advantage = network(self.next)[1], torch.zeros(ENVIRONMENTS)
        for step in reversed(range(UNROLL)):
            goes_on = 1.0 - self.ends[step]
            error = self.rewards[step] + DISCOUNT * goes_on * value - self.values[step]
            advantage = error + DISCOUNT * LAMBDA * goes_on * advantage
            advantages[step], value = advantage, self.values[step]
        return advantages


def loss_of(network: Network, games: Games, advantages: Tensor, chosen: Tensor) -> Tensor:
    """The loss of PPO over the steps with these numbers in [T × B]."""
    log_policy, values = network(games.frames.flatten(0, 1)[chosen])
    taken = log_policy.gather(1, games.actions.flatten()[chosen, None])[:, 0]
    ratio = (taken - games.log_probabilities.flatten()[chosen]).exp()
    advantage = advantages.flatten()[chosen]
    normal = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = torch.max(-normal * ratio, -normal * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
    before = games.values.flatten()[chosen]
    returns = advantage + before
    clipped = before + (values - before).clamp(-CLIP, CLIP)
    value_loss = 0.5 * torch.max((values - returns) ** 2, (clipped - returns) ** 2).mean()
    entropy = -(log_policy.exp() * log_policy).sum(1).mean()
    return policy_loss + VALUE_WEIGHT * value_loss - ENTROPY_WEIGHT * entropy


def main() -> None:
    flags = parse(sys.argv[1:], algorithms=["ppo"])
    torch.set_num_threads(flags.threads)
    torch.manual_seed(flags.seed)
    rows = Rows(flags.rows)
    games = Games(rows, sticky=flags.sticky, seed=flags.seed, threads=flags.threads)
    network = Network(games.actions_count)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, eps=1e-5)
    for steps in range(UNROLL * ENVIRONMENTS, STEPS, UNROLL * ENVIRONMENTS):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - steps / STEPS)
        games.play(network)
        advantages = games.advantages(network)
        for _ in range(EPOCHS):
            for chosen in torch.randperm(UNROLL * ENVIRONMENTS).split(BATCH):
                optimizer.zero_grad()
                loss_of(network, games, advantages, chosen).backward()
                nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_CLIP)
                optimizer.step()
        rows.add_update(steps)


if __name__ == "__main__":
    main()
