"""How an actor plays without learning: one decision after another, with its recurrent state."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ps_common.errors import PsRlError
from rl_agent.environments.interface import Environments, Stepped
from rl_agent.environments.unsound_numbers import unsound_observation
from rl_agent.rollouts import Decision, State


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
        self._steps = np.zeros(environments.count, np.int64)  # of the games in progress
        first = environments.reset(seed)
        if (unsound := unsound_observation(first, environments.observations)) is not None:
            raise PsRlError(f"{unsound.sentence(environments)}: it cannot be played")
        self._observations = torch.from_numpy(first)
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
        """Step every environment once. Raises PsRlError for a number without which no game has a score."""
        stepped = self._environments.step(decision.actions.cpu().numpy())
        if stepped.unsound is not None:
            sentence = stepped.unsound.sentence(self._environments, steps=self._steps[stepped.unsound.row])
            raise PsRlError(f"{sentence}: the game has no score")
        ended = np.logical_or(stepped.terminated, stepped.truncated)
        self._steps = np.where(ended, 0, self._steps + 1)
        self._observations, self._state = torch.from_numpy(stepped.observations), decision.state
        self._starts = torch.from_numpy(ended)
        return stepped
