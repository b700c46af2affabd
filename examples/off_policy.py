"""Soft Q-learning (Haarnoja et al. 2017) from remembered steps: a custom algorithm without any of ours below it."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from torch import Tensor, device, nn

from ps_rl import Block, Decision, Drawn, Loaded, Loss, Prediction, ReplayedUpdates, State, Trajectory


class SoftQSettings(msgspec.Struct, frozen=True, kw_only=True):
    unroll_length: int = 16
    temperature: float = 0.1  # weight of the policy's entropy


@dataclass(eq=False)
class SoftQ:
    network: nn.Module
    target: nn.Module
    replay: ReplayedUpdates
    unroll_length: int
    temperature: float
    version, discount, target_rate, settings = 0, 0.98, 0.005, SoftQSettings
    blocks = (Block("body", ("0.",)), Block("head", ("2.",), learning_rate=0.5, gradient_clip=1.0))

    @classmethod
    def build(cls, settings: SoftQSettings, run: Any, spaces: Any, *, device: device, seed: int) -> "SoftQ":
        (inputs,), replay = spaces.observations.shape, ReplayedUpdates(run.replay, frames=1, seed=seed)
        network = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, spaces.actions.count)).to(device)
        return cls(network, copy.deepcopy(network), replay, settings.unroll_length, settings.temperature)

    def begin_unroll(self, global_steps: int) -> None:
        self.replay.global_steps = global_steps

    def loaded(self, loaded: Loaded) -> None:
        share = 1 - (1 - self.target_rate) ** max(0, loaded.version - self.version) if self.version else 1.0
        for mine, newest in zip(self.target.parameters(), self.network.parameters(), strict=True):
            mine.data = newest.detach().clone() if loaded.went_back else mine.data.lerp(newest.detach(), share)
        self.version = loaded.version

    def predict(self, observations: Tensor, state: State, starts: Tensor) -> Prediction:
        values = self.network(observations).detach().cpu()
        return Prediction(values.amax(-1), (values / self.temperature).softmax(-1))

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        chances = (self.network(observations).detach().cpu() / self.temperature).softmax(-1)
        return Decision(chances.argmax(-1) if greedy else chances.multinomial(1).squeeze(-1), (), {})

    def batches(self, trajectory: Trajectory) -> Iterator[Drawn]:
        self.replay.remember(trajectory)
        return self.replay.due(trajectory.steps, discount=self.discount, rewards=lambda rewards: rewards)

    def loss(self, drawn: Drawn) -> Loss:
        after = (self.target(drawn.next_observations).detach() / self.temperature).logsumexp(-1)
        targets = drawn.rewards + drawn.discounts * self.temperature * after
        values = self.network(drawn.observations).gather(-1, drawn.actions.unsqueeze(-1)).squeeze(-1)
        return Loss(nn.functional.huber_loss(values, targets), {"value": values.detach().mean()})
