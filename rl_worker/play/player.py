"""How an actor plays without learning: one decision after another, with its recurrent state."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rl_worker.environments.interface import Environments, Stepped
from rl_worker.rollouts import Decision, State


class Plays(Protocol):
    """An actor that can also leave out its exploration: an agent, or a fixed policy without a network."""

    def initial_state(self, count: int) -> State: ...

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision: ...


class Player:
    """An actor in environments, which are reset with `seed`."""

    def __init__(self, actor: Plays, environments: Environments, *, greedy: bool, seed: int) -> None:
        self._actor = actor
        self._environments = environments
        self._greedy = greedy
        self._observations = torch.from_numpy(environments.reset(seed))
        self._state = actor.initial_state(environments.count)
        self._starts = torch.ones(environments.count, dtype=torch.bool)

    @property
    def grounds(self) -> tuple[Tensor, State, Tensor]:
        """The grounds of the next decision: observations, recurrent state, and which observations begin a game."""
        return self._observations, self._state, self._starts

    def decide(self) -> Decision:
        """Actions for the observations of now."""
        return self._actor.act(*self.grounds, greedy=self._greedy)

    def take(self, decision: Decision) -> Stepped:
        """Step every environment once."""
        stepped = self._environments.step(decision.actions.cpu().numpy())
        self._observations, self._state = torch.from_numpy(stepped.observations), decision.state
        self._starts = torch.from_numpy(np.logical_or(stepped.terminated, stepped.truncated))
        return stepped
