"""
The networks that are trained: a torso, an optional LSTM, and heads.

Networks take time-major sequences [T, B, ...] and the recurrent state before them; a network without an LSTM treats
them as T · B independent observations.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ps_common.settings.run_spec import A3CSettings, ActionValuesSettings, DqnSettings, NetworkSettings
from rl_agent.environments.spaces import DiscreteActions, ObservationSpace, Spaces
from rl_agent.networks.custom_network import part_of
from rl_agent.networks.policies import policy_for
from rl_agent.networks.running_statistics import ReturnNormalization, return_normalization
from rl_agent.networks.torsos import head, torso_for
from rl_agent.rollouts import State


class Branch(nn.Module):
    """A torso and an optional LSTM."""

    def __init__(self, settings: NetworkSettings, observations: ObservationSpace) -> None:
        super().__init__()
        self.torso, self.features = torso_for(settings, observations, settings.hidden)
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

    def __init__(self, settings: NetworkSettings, observations: ObservationSpace, *, policy_parameters: int) -> None:
        super().__init__()
        self.returns: ReturnNormalization | None = None  # of the rewards that it learns from
        self._mask = observations.mask
        self.branch = Branch(settings, observations)
        self.value_branch = Branch(settings, observations) if settings.separate else None
        self.policy = head(self.branch.features, policy_parameters, settings, gain=0.01)
        self.value = head((self.value_branch or self.branch).features, 1, settings, gain=1.0)

    def initial_state(self, count: int, device: torch.device) -> State:
        """The initial state of the policy's branch, followed by that of the value's own branch if there is one."""
        state = self.branch.initial_state(count, device)
        return state if self.value_branch is None else state + self.value_branch.initial_state(count, device)

    def forward(self, observations: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        """
        [T, B, ...] → parameters of the policy [T, B, P], values [T, B], and the state after them.

        Observations with a mask [M] give parameters [T, B, P + M]: the mask comes last.
        """
        if self.value_branch is None:
            features, after = self.branch(observations, state, starts)
            value_features = features
        else:
            half = len(state) // 2
            features, after = self.branch(observations, state[:half], starts)
            value_features, value_after = self.value_branch(observations, state[half:], starts)
            after = after + value_after
        parameters = self.policy(features)
        if self._mask is not None:
            parameters = torch.cat([parameters, part_of(observations, self._mask).to(parameters.dtype)], dim=-1)
        return parameters, self.value(value_features).squeeze(-1), after


class ActionValueNetwork(nn.Module):
    """
    Q(s, ·): one number for each action, or K quantiles of the return, of which Q is the mean. Actions that a mask does
    not allow have less than `allowed` takes.

    `dueling`: a value and advantages less their mean (Wang et al. 2016, equation 9) in place of each.
    """

    another: Callable[[], "ActionValueNetwork"] | None = None  # builds one more of its kind; None: not known

    def __init__(
        self,
        settings: NetworkSettings,
        observations: ObservationSpace,
        *,
        actions: int,
        quantiles: int = 1,
        dueling: bool = False,
    ) -> None:
        super().__init__()
        self.returns: ReturnNormalization | None = None  # of the rewards that it learns from
        self._mask = observations.mask
        self._shape = (actions, quantiles)
        self.torso, features = torso_for(settings, observations, settings.hidden)
        self.values = head(features, actions * quantiles, settings, gain=1.0)
        self.value = head(features, quantiles, settings, gain=1.0) if dueling else None

    def quantiles(self, observations: Tensor) -> Tensor:
        """[N, ...] → [N, A, K], whatever a mask allows."""
        features = self.torso(observations)
        found: Tensor = self.values(features).unflatten(-1, self._shape)
        if self.value is not None:
            found = self.value(features).unsqueeze(1) + found - found.mean(1, keepdim=True)
        return found

    def forward(self, observations: Tensor) -> Tensor:
        """[N, ...] → [N, A]"""
        values = self.quantiles(observations).mean(-1)
        if self._mask is None:
            return values
        return only_allowed(values, part_of(observations, self._mask))


def policy_value_network(settings: A3CSettings, network: NetworkSettings, spaces: Spaces) -> PolicyValueNetwork:
    """A new network of A3C. Raises SettingsError when it does not fit the spaces."""
    policy = policy_for(spaces.actions, masked=spaces.observations.mask is not None)
    made = PolicyValueNetwork(network, spaces.observations, policy_parameters=policy.parameters)
    made.returns = return_normalization(settings)
    return made


def action_value_network(
    settings: ActionValuesSettings, network: NetworkSettings, spaces: Spaces
) -> ActionValueNetwork:
    """A new network of action values. Raises SettingsError when it does not fit the spaces."""
    assert isinstance(spaces.actions, DiscreteActions), "check_algorithm refuses others"
    quantiles, dueling = (settings.quantiles, settings.dueling) if isinstance(settings, DqnSettings) else (0, False)
    made = ActionValueNetwork(
        network,
        spaces.observations,
        actions=spaces.actions.count,
        quantiles=max(1, quantiles),
        dueling=dueling,
    )
    made.returns = return_normalization(settings)
    return made


def only_allowed(values: Tensor, mask: Tensor) -> Tensor:
    """Action values [..., A] with the least number that there is where the mask [..., A] is 0."""
    return values.masked_fill(mask == 0, torch.finfo(values.dtype).min)


def allowed(values: Tensor) -> Tensor:
    """Which action values [..., A] the mask allows: no weights give the least number that there is."""
    return values > torch.finfo(values.dtype).min
