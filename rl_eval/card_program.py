"""The programs on a model card: one plays a game with the policy, one acts with model.onnx, without ps-rl."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ps_common.protocol.names import module_of
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.spaces import BoxActions, DiscreteActions, Spaces
from rl_agent.networks.networks import PolicyValueNetwork
from rl_agent.networks.soft_actor_critic import SoftActorCriticNetwork
from rl_eval.native.onnx_inputs import Inputs

PLAY = """\
from ps_rl import load_policy, make_env

policy = load_policy("."{of_agent})
game = make_env(policy{of_game})


def play(seed):
    \"\"\"The score of one game.\"\"\"
    policy.reset()
    observation, _ = game.reset(seed=seed)
    score, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = game.step(policy.act(observation{greedy}))
        score += reward
        ended = terminated or truncated
    return score


print("score:", play(seed=0))"""
ONNX = """\
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
memory = {{part.name: np.zeros((1, *part.shape[1:]), np.float32) for part in session.get_inputs()[{after_starts}:]}}
memory["starts"] = np.array([True])  # again before the first observation of each game


def act(given):
    \"\"\"The most probable actions for what the environment shows: arrays [N, ...] by their names.\"\"\"
    outputs = session.run(None, given{more})
    memory.update(zip(memory, outputs[2:]), starts=np.array([False]))
    return {actions}


given = {{
{given}
}}
print("actions:", act(given))"""


def program(run: RunSpec, *, is_greedy: bool) -> str:
    """It plays with `load_policy` and `make_env`, and chooses actions as the evaluated games did."""
    greedy = ", greedy=True" if is_greedy else ""
    return PLAY.format(of_agent=_imports(run.agent_parts), of_game=_imports(run.environment.parts), greedy=greedy)


def onnx_program(spaces: Spaces, network: nn.Module) -> str:
    """It acts with model.onnx; "" where actions take more than a line."""
    if not (actions := _actions(spaces, network)):
        return ""
    inputs = Inputs(spaces.observations, spaces.actions)
    given = [
        f"    {json.dumps(name, ensure_ascii=False)}: np.full({list(zero.shape)}, {_first(zero)}, np.{_dtype(zero)}),"
        for name, zero in zip(inputs.names, inputs.examples(1), strict=True)
    ]
    has_memory = isinstance(network, PolicyValueNetwork) and bool(network.initial_state(1, torch.device("cpu")))
    lines = [line for line in ONNX.split("\n") if has_memory or "memory" not in line]
    more = " | memory" if has_memory else ""
    text = "\n".join(lines)
    return text.format(after_starts=len(given) + 1, given="\n".join(given), actions=actions, more=more)


def _first(zero: torch.Tensor) -> str:
    return f"{zero.flatten()[0].item() if zero.numel() else 0:g}"


def _dtype(zero: torch.Tensor) -> str:
    return str(zero.dtype).removeprefix("torch.")


def _imports(parts: Sequence[str]) -> str:
    modules = ", ".join(f'"{module}"' for module in sorted(set(map(module_of, parts))))
    return f", imports=[{modules}]" if modules else ""


def _actions(spaces: Spaces, network: nn.Module) -> str:
    """The game's actions of the network's outputs; "" where these take more."""
    if isinstance(network, SoftActorCriticNetwork):
        return "outputs[0]"
    match spaces.actions:
        case DiscreteActions(count=count, numbers=numbers):
            listed = list(range(count)) if numbers is None else numbers.tolist()
            return f"np.array({listed})[outputs[0].argmax(axis=1)]"
        case BoxActions(low=low, high=high, shape=shape):
            means = "np.split(outputs[0], 2, axis=1)[0]"
            reshaped = f"{means}.reshape(-1, {', '.join(map(str, shape or low.shape))})"
            bounds = ", ".join(_literal(ends.reshape(shape or ends.shape)) for ends in (low, high))
            return f"np.clip({reshaped}, {bounds})"
    return ""


def _literal(bounds: NDArray[Any]) -> str:
    """A bound of actions, where one number says it as one."""
    same = len(np.unique(bounds)) == 1
    text = repr(bounds.flat[0].item() if same else bounds.tolist())
    return text.replace("inf", "np.inf")
