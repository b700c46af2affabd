"""
A network as an ONNX file, with a dynamic number of observations.

The inputs are what the environment shows: each part of a Dict or Tuple by its key, as it is, and `action_mask` where
there are masks; of another space `observations` [N, ...] as the network sees it. With an LSTM there are also `starts`
[N] bool, True for the first of a game, and the state `state_0`, `state_1`, … [N, H]. Outputs are `parameters` of the
policy and `values`, and the state after them; or `action_values`; or of SAC the mean `actions` within their bounds.
"""

import contextlib
import importlib.util
import io
import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from ps_common.errors import SettingsError
from rl_agent.environments.spaces import ActionSpace, BoxActions, ObservationSpace
from rl_agent.networks.networks import ActionValueNetwork, PolicyValueNetwork
from rl_agent.networks.policies import FORBIDDEN
from rl_agent.networks.soft_actor_critic import SoftActorCriticNetwork
from rl_eval.native.onnx_inputs import Inputs

EXTRA = "in a checkout of ps-rl: pip install -c constraints.txt '.[onnx]'"
EXPORTERS = ("torch.onnx", "onnx_ir", "onnxscript")  # whose logs tell of their own work
EXAMPLES = 2  # observations that the network is traced with


class Values(nn.Module):
    """Action values of single observations."""

    outputs = ("action_values",)

    def __init__(self, network: ActionValueNetwork, inputs: Inputs) -> None:
        super().__init__()
        self.network, self.inputs = network, inputs

    def forward(self, *arguments: Tensor) -> Tensor:
        observations, _ = self.inputs(arguments)
        values: Tensor = self.network(observations)
        return values


class Means(nn.Module):
    """The mean actions of SAC, within the bounds of the environment and in its shape, of single observations."""

    outputs = ("actions",)
    low: Tensor
    width: Tensor

    def __init__(self, network: SoftActorCriticNetwork, inputs: Inputs, actions: BoxActions) -> None:
        super().__init__()
        self.network, self.inputs = network, inputs
        low, high = (torch.from_numpy(bound) for bound in actions.finite_bounds())
        self.register_buffer("low", low)
        self.register_buffer("width", high - low)
        self._shape = actions.shape or tuple(low.shape)

    def forward(self, *arguments: Tensor) -> Tensor:
        observations, mask = self.inputs(arguments)
        chosen = self.low + self.width * (self.network(observations) + 1) / 2
        if mask is not None:
            chosen = chosen * mask
        within: Tensor = chosen.unflatten(-1, self._shape)
        return within


class OneStep(nn.Module):
    """
    A policy and value network for single observations; of a memory each tensor of its state is an argument.

    A mask has its effect in `parameters`: logits of what it forbids are FORBIDDEN, and means are 0.
    """

    def __init__(self, network: PolicyValueNetwork, inputs: Inputs) -> None:
        super().__init__()
        self.network, self.inputs = network, inputs
        state = network.initial_state(1, torch.device("cpu"))
        self.outputs = ("parameters", "values", *(f"state_{number}_after" for number in range(len(state))))

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        count = len(self.inputs.names)
        observations, mask = self.inputs(arguments[:count])
        starts, state = torch.zeros(observations.shape[0], dtype=torch.bool), arguments[count + 1 :]
        if state:
            starts = arguments[count]
        parameters, values, after = self.network(observations.unsqueeze(0), state, starts.unsqueeze(0))
        parameters = parameters.squeeze(0)
        if mask is not None:
            parameters, size = parameters[:, : -mask.shape[-1]], mask.shape[-1]
            if parameters.shape[-1] == size:  # logits
                parameters = parameters.masked_fill(mask == 0, FORBIDDEN)
            else:
                parameters = torch.cat([parameters[:, :size] * mask, parameters[:, size:]], dim=-1)
        return (parameters, values.squeeze(0), *after)


def check_onnx(network: nn.Module) -> None:
    """Raises SettingsError if the network cannot be written, or the extra is not installed."""
    if not isinstance(network, ActionValueNetwork | PolicyValueNetwork | SoftActorCriticNetwork):
        raise SettingsError(
            f"--onnx: {type(network).__name__} is the network of a custom algorithm: its outputs are unknown"
        )
    if importlib.util.find_spec("onnxscript") is None:
        raise SettingsError(f"--onnx: onnxscript is not installed; {EXTRA}")


def write_onnx(
    path: Path, network: nn.Module, observations: ObservationSpace, actions: ActionSpace | None = None
) -> None:
    """`actions`: those of the environment, which SAC needs. Raises SettingsError as `check_onnx`."""
    check_onnx(network)
    module, arguments, names = _traced(network, Inputs(observations, actions), actions)
    levels = {name: logging.getLogger(name).level for name in EXPORTERS}
    try:
        for name in EXPORTERS:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # of the exporter, about itself
            exported = torch.onnx.export(
                module.eval(),
                arguments,
                input_names=names,
                output_names=list(module.outputs),
                dynamic_shapes=(tuple({0: torch.export.Dim("N")} for _ in arguments),),
            )
            assert exported is not None, "what exports to no file returns a program"
            for value in (output for node in exported.model.graph for output in node.outputs):
                while value.name in names:  # a key may have the name of a layer
                    value.name = f"computed.{value.name}"
            exported.save(path, external_data=False)
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _traced(
    network: nn.Module, inputs: Inputs, actions: ActionSpace | None
) -> tuple[Values | Means | OneStep, tuple[Tensor, ...], list[str]]:
    """The module to write, example arguments, and the names of its inputs."""
    seen, names = inputs.examples(EXAMPLES), list(inputs.names)
    match network:
        case ActionValueNetwork():
            return Values(network, inputs), seen, names
        case SoftActorCriticNetwork():
            assert isinstance(actions, BoxActions), "it has no others"
            return Means(network, inputs, actions), seen, names
    assert isinstance(network, PolicyValueNetwork), "check_onnx refuses another"
    state = network.initial_state(EXAMPLES, torch.device("cpu"))
    if state:
        seen = (*seen, torch.zeros(EXAMPLES, dtype=torch.bool), *state)
        names += ["starts", *(f"state_{number}" for number in range(len(state)))]
    return OneStep(network, inputs), seen, names
