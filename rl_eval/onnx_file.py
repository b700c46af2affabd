"""
A network as an ONNX file, with a dynamic number of observations.

Inputs are `observations` [N, ...]; with an LSTM also `starts` [N] bool, True for the first of a game, and the state
`state_0`, `state_1`, … [N, H]. Outputs are `parameters` of the policy and `values`, and the state after them; or
`action_values`.
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
from rl_agent.environments.spaces import ObservationSpace
from rl_agent.networks.networks import ActionValueNetwork, PolicyValueNetwork

EXTRA = "in a checkout of ps-rl: pip install -c constraints.txt '.[onnx]'"
EXAMPLES = 2  # observations that the network is traced with


class OneStep(nn.Module):
    """A policy and value network for single observations; of a memory each tensor of its state is an argument."""

    def __init__(self, network: PolicyValueNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, observations: Tensor, starts: Tensor | None = None, *state: Tensor) -> tuple[Tensor, ...]:
        if starts is None:
            starts = torch.zeros(observations.shape[0], dtype=torch.bool)
        parameters, values, after = self.network(observations.unsqueeze(0), state, starts.unsqueeze(0))
        return (parameters.squeeze(0), values.squeeze(0), *after)


def check_onnx(network: nn.Module, observations: ObservationSpace) -> None:
    """Raises SettingsError if the network cannot be written, or the extra is not installed."""
    if observations.parts:
        raise SettingsError("--onnx: ONNX has no way to read packed observations (several parts, or a mask)")
    if not isinstance(network, ActionValueNetwork | PolicyValueNetwork):
        raise SettingsError(
            f"--onnx: {type(network).__name__} is the network of a custom algorithm: its outputs are unknown"
        )
    if importlib.util.find_spec("onnxscript") is None:
        raise SettingsError(f"--onnx: onnxscript is not installed; {EXTRA}")


def write_onnx(path: Path, network: nn.Module, observations: ObservationSpace) -> None:
    """Raises SettingsError as `check_onnx`."""
    check_onnx(network, observations)
    module, arguments, names, outputs = _traced(network, observations)
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # of the exporter, about itself
            torch.onnx.export(
                module.eval(),
                arguments,
                str(path),
                input_names=names,
                output_names=outputs,
                dynamic_shapes=_dynamic(arguments),
                external_data=False,
            )
    finally:
        log.setLevel(level)


def _traced(
    network: nn.Module, observations: ObservationSpace
) -> tuple[nn.Module, tuple[Tensor, ...], list[str], list[str]]:
    """The module to write, example arguments, and the names of inputs and outputs."""
    dtype = torch.uint8 if observations.pixels else torch.float32
    seen = torch.zeros(EXAMPLES, *observations.shape, dtype=dtype)
    if isinstance(network, ActionValueNetwork):
        return network, (seen,), ["observations"], ["action_values"]
    assert isinstance(network, PolicyValueNetwork), "check_onnx refuses another"
    state = network.initial_state(EXAMPLES, torch.device("cpu"))
    if not state:
        return OneStep(network), (seen,), ["observations"], ["parameters", "values"]
    names = [f"state_{number}" for number in range(len(state))]
    starts = torch.zeros(EXAMPLES, dtype=torch.bool)
    outputs = ["parameters", "values", *(f"{name}_after" for name in names)]
    return OneStep(network), (seen, starts, *state), ["observations", "starts", *names], outputs


def _dynamic(arguments: tuple[Tensor, ...]) -> tuple[object, ...]:
    """The first axis of each argument is the number of observations; the tensors of a state are one argument."""
    axis = {0: torch.export.Dim("N")}
    return (axis, axis, tuple(axis for _ in arguments[2:])) if arguments[1:] else (axis,)
