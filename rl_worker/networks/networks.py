"""
The networks that are trained: a torso, an optional LSTM, and heads.

Networks take time-major sequences [T, B, ...] and the recurrent state before them; a network without an LSTM treats
them as T · B independent observations.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from common.settings.run_spec import Network
from rl_worker.networks.torsos import head, torso_for
from rl_worker.rollouts import State


class Branch(nn.Module):
    """A torso and an optional LSTM."""

    def __init__(self, settings: Network, shape: Sequence[int], hidden: Sequence[int], *, pixels: bool) -> None:
        super().__init__()
        self.torso, self.features = torso_for(settings, shape, hidden, pixels=pixels)
        self.lstm: nn.LSTMCell | None = None
        if settings.lstm:
            self.lstm = nn.LSTMCell(self.features, settings.lstm)
            self.features = settings.lstm

    def initial_state(self, count: int, device: torch.device) -> State:
        """Zeros: hidden and cell state, [B, H] each; () without an LSTM."""
        if self.lstm is None:
            return ()
        return tuple(torch.zeros(count, self.lstm.hidden_size, device=device) for _ in range(2))

    def forward(self, observations: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
        """
        observations [T, B, ...] → features [T, B, F], and the state after them.

        `starts` [T, B] marks the first observation of an episode; the state before it is replaced by zeros.
        """
        features = self.torso(observations.flatten(0, 1)).unflatten(0, observations.shape[:2])
        if self.lstm is None:
            return features, ()
        hidden, cell = state
        keeps_state = (~starts).unsqueeze(-1)
        outputs = []
        for t in range(len(features)):
            hidden, cell = self.lstm(features[t], (hidden * keeps_state[t], cell * keeps_state[t]))
            outputs.append(hidden)
        return torch.stack(outputs), (hidden, cell)


class PolicyValueNetwork(nn.Module):
    """A policy head and a value head on one branch (Mnih et al. 2016, section 4.4), or on one each (section 9)."""

    def __init__(self, settings: Network, shape: Sequence[int], *, pixels: bool, policy_parameters: int) -> None:
        super().__init__()
        self.branch = Branch(settings, shape, settings.hidden, pixels=pixels)
        self.value_branch: Branch | None = None
        if settings.separate:
            self.value_branch = Branch(settings, shape, settings.value_hidden or settings.hidden, pixels=pixels)
        self.policy = head(self.branch.features, policy_parameters, settings, gain=0.01)
        self.value = head((self.value_branch or self.branch).features, 1, settings, gain=1.0)

    def initial_state(self, count: int, device: torch.device) -> State:
        """The initial state of the policy's branch, followed by that of the value's own branch if there is one."""
        state = self.branch.initial_state(count, device)
        return state if self.value_branch is None else state + self.value_branch.initial_state(count, device)

    def forward(self, observations: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        """[T, B, ...] → parameters of the policy [T, B, P], values [T, B], and the state after them."""
        if self.value_branch is None:
            features, after = self.branch(observations, state, starts)
            return self.policy(features), self.value(features).squeeze(-1), after
        half = len(state) // 2
        features, after = self.branch(observations, state[:half], starts)
        value_features, value_after = self.value_branch(observations, state[half:], starts)
        return self.policy(features), self.value(value_features).squeeze(-1), after + value_after


class ActionValueNetwork(nn.Module):
    """Q(s, ·): one number for each action."""

    def __init__(self, settings: Network, shape: Sequence[int], *, pixels: bool, actions: int) -> None:
        super().__init__()
        self.torso, features = torso_for(settings, shape, settings.hidden, pixels=pixels)
        self.values = head(features, actions, settings, gain=1.0)

    def forward(self, observations: Tensor) -> Tensor:
        """[N, ...] → [N, A]"""
        values: Tensor = self.values(self.torso(observations))
        return values
