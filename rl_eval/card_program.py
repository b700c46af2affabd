"""
The programs on a model card: plain Gymnasium plays a game with the policy, which sees exactly what it saw in its run.

They are made of the run's settings. An ALE game is ALE's own vector environment, of one game, with the run's arguments,
because frames are resized there; what numpy does to them is shown as its source. A game whose observations take more
than this is made by `ps_rl.make_env`.
"""

import inspect
import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import nn

from ps_common.protocol.names import is_import_path, module_of
from ps_common.settings.run_spec import Environment, RunSpec
from rl_agent.environments.any_gymnasium import made_environment
from rl_agent.environments.interface import Environments
from rl_agent.environments.preprocessing import scheme_for
from rl_agent.environments.spaces import BoxActions, DiscreteActions
from rl_agent.native_observations import NativeObservations
from rl_agent.networks.networks import PolicyValueNetwork
from rl_agent.networks.soft_actor_critic import SoftActorCriticNetwork
from rl_eval.native.onnx_inputs import MASK, Inputs

ALE = """\
gymnasium.register_envs(ale_py)
# A frame is the maximum of the last two emulator frames of a step, pixel by pixel (maxpool). Where its size is not
# 210x160, ALE resizes it after that, with OpenCV's INTER_AREA.
game = gymnasium.make_vec(
    {id},
    num_envs=1,
{arguments}
)"""
STACK = """
frames = collections.deque(maxlen={stack})


{source}

def seen(screens):
    \"\"\"The last frames, the oldest first; the first frame of a game stands for those before it.\"\"\"
    frames.append({scheme}(screens[:, 0]))
    while len(frames) < {stack}:
        frames.append(frames[0])
    return np.stack(frames, axis=1).reshape(1, {shape})"""
PLAY = """


def play(seed):
    \"\"\"The score of one game.\"\"\"
{starts}    observation, _ = game.reset(seed=seed)
    score, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = game.step({act})
        score += reward{one}
        ended = terminated{one} or truncated{one}
    return score


print("score:", play(seed=0))"""
ONNX = """\
session = onnxruntime.InferenceSession("model.onnx")
memory = {{part.name: np.zeros((1, *part.shape[1:]), np.float32) for part in session.get_inputs()[2:]}}
{game}


def act(observations):
    \"\"\"The most probable actions for observations [N, {shape}].\"\"\"
    given = {{"observations": np.asarray(observations, np.{dtype}).reshape(-1, {shape})}}
    given |= memory
    outputs = session.run(None, given)
    memory.update(zip(memory, outputs[2:]), starts=np.array([False]))
    return {actions}"""
ONNX_OF_PARTS = """\
session = onnxruntime.InferenceSession("model.onnx")
memory = {{part.name: np.zeros((1, *part.shape[1:]), np.float32) for part in session.get_inputs()[{inputs}:]}}
memory["starts"] = np.array([True])  # again before the first observation of each game


def act(observation{given_mask}):
    \"\"\"The most probable action for an observation, as the environment shows it.\"\"\"
    given = {{
{given}
    }}
    given |= memory
    outputs = session.run(None, given)
    memory.update(zip(memory, outputs[2:]), starts=np.array([False]))
    return {actions}[0]


print("action:", act({example}))"""
FIRST = 'memory["starts"] = np.array([True])  # the next observation is the first of a game'


def program(run: RunSpec, environments: Environments, *, is_greedy: bool) -> str:
    """It plays with `load_policy`, and chooses actions as the evaluated games did."""
    settings, greedy = run.environment, ", greedy=True" if is_greedy else ""
    game = _game(settings, environments) or f"game = make_env(policy{_imports(settings.parts)})"
    setup = f'policy = load_policy("."{_imports(run.agent_parts)})\n{game}'
    return _whole(setup, f"policy.act({{seen}}{greedy})", "policy.reset()")


def onnx_program(settings: Environment, environments: Environments, network: nn.Module) -> str:
    """It plays with model.onnx, or acts with it, without ps-rl; "" if game or actions take more than a few lines."""
    space, shape = environments.observations, ", ".join(map(str, environments.observations.shape))
    has_memory = isinstance(network, PolicyValueNetwork) and bool(network.initial_state(1, torch.device("cpu")))
    if not (actions := _actions(environments, network)):
        return ""
    if space.native is not None and (space.parts or space.native.leaves[0].path):
        return _of_parts(environments, actions, has_memory=has_memory)
    if not (game := _game(settings, environments)) or space.parts:
        return ""
    lines = [line for line in ONNX.split("\n") if has_memory or "memory" not in line]
    setup = "\n".join(lines).format(game=game, actions=actions, shape=shape, dtype=space.dtype)
    one = "" if settings.family == "ale" else "[0]"
    return _whole(setup, "act({seen})" + one, *([FIRST] if has_memory else []))


def _whole(setup: str, act: str, *starts: str) -> str:
    """The program, with its imports."""
    seen, lines = "observation", "".join(f"    {line}\n" for line in starts)
    if "def seen(" in setup:
        seen, lines = "seen(observation)", f"{lines}    frames.clear()\n"
    one = "[0]" if "make_vec(" in setup else ""
    text = setup + PLAY.format(starts=lines, act=act.format(seen=seen), one=one)
    modules = {"collections.": "collections\n", "ale_py)": "ale_py", "gymnasium.": "gymnasium", "np.": "numpy as np"}
    modules["onnxruntime."] = "onnxruntime"
    names = [name for name in ("load_policy", "make_env") if f"{name}(" in text]
    imports = [f"import {module}" for used, module in modules.items() if used in text]
    return "\n".join([*imports, *([f"\nfrom ps_rl import {', '.join(names)}"] if names else []), "", text]).lstrip()


def _game(settings: Environment, environments: Environments) -> str:
    """How plain Gymnasium makes the game, with a function `seen` if observations need one; "": it takes more."""
    if settings.family == "ale":
        return _ale(settings, environments)
    if settings.family != "gymnasium" or settings.wrapper or is_import_path(settings.id):
        return ""
    with closing(made_environment(settings)) as environment:
        space = environment.observation_space
    if not isinstance(space, Box) or len(space.shape) != 1 or environments.observations.parts:
        return ""
    limit = {"max_episode_steps": settings.max_episode_steps} if settings.max_episode_steps else {}
    arguments = "".join(f", {name}={value!r}" for name, value in (limit | settings.kwargs).items())
    return f"game = gymnasium.make({json.dumps(settings.id)}{arguments})"


def _ale(settings: Environment, environments: Environments) -> str:
    from rl_agent.environments.atari import vector_arguments  # loads ALE

    # How games follow one another is of no concern to one game.
    arguments = {name: value for name, value in vector_arguments(settings).items() if name != "autoreset_mode"}
    game = ALE.format(
        id=json.dumps(settings.id), arguments="\n".join(f"    {name}={value!r}," for name, value in arguments.items())
    )
    if (function := scheme_for(settings).function) is None:
        return game
    shape, source = ", ".join(map(str, environments.observations.shape)), inspect.getsource(function)
    return game + STACK.format(stack=settings.frame_stack, source=source, scheme=function.__name__, shape=shape)


def _imports(parts: Sequence[str]) -> str:
    modules = ", ".join(f'"{module}"' for module in sorted(set(map(module_of, parts))))
    return f", imports=[{modules}]" if modules else ""


def _actions(environments: Environments, network: nn.Module) -> str:
    """The game's actions of the network's outputs; "" where these take more."""
    if isinstance(network, SoftActorCriticNetwork):
        return "outputs[0]"
    match environments.actions:
        case DiscreteActions(numbers=numbers):
            assert numbers is not None, "an environment has them"
            return f"np.array({numbers.tolist()})[outputs[0].argmax(axis=1)]"
        case BoxActions(squashed=False, low=low, high=high, shape=shape):
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


def _of_parts(environments: Environments, actions: str, *, has_memory: bool) -> str:
    """How model.onnx acts on what the environment shows, part by part."""
    space, inputs = environments.observations, Inputs(environments.observations, environments.actions)
    assert space.native is not None, "else nothing is known of the parts"
    mask = space.native.mask
    places = ["".join(f"[{_key(key)}]" for key in leaf.path) for leaf in space.native.leaves]
    shown = ["observation" + place for place in places]
    if mask is not None:
        shown.append(MASK if mask.in_info else f"observation[{_key(MASK)}]")
    zeros = inputs.examples(1)
    dtypes = [str(zero.dtype).removeprefix("torch.") for zero in zeros]
    given = [
        f"        {_key(name)}: np.asarray({one}, np.{dtype})[None],"
        for name, one, dtype in zip(inputs.names, shown, dtypes, strict=True)
    ]
    arrays = [
        f"np.full({list(zero.shape[1:])}, {zero.flatten()[0].item() if zero.numel() else 0:g}, np.{dtype})"
        for zero, dtype in zip(zeros, dtypes, strict=True)
    ]
    lines = [line for line in ONNX_OF_PARTS.split("\n") if has_memory or "memory" not in line]
    in_info = mask is not None and mask.in_info
    setup = "\n".join(lines).format(
        inputs=len(inputs.names) + 1,
        given="\n".join(given),
        given_mask=f", {MASK}" if in_info else "",
        actions=actions,
        example=_example(space.native, arrays) + (f", {arrays[-1]}" if in_info else ""),
    )
    return f"import numpy as np\nimport onnxruntime\n\n{setup}"


def _example(native: NativeObservations, arrays: Sequence[str]) -> str:
    """An observation that is made of expressions for each leaf, and for the mask if it is a key."""
    paths = [leaf.path for leaf in native.leaves] + ([] if native.mask is None or native.mask.in_info else [(MASK,)])
    example: dict[Any, Any] = {}
    for path, array in zip(paths, arrays, strict=False):
        place = example
        for key in path[:-1]:
            place = place.setdefault(key, {})
        if path:
            place[path[-1]] = array
    return _expression(example) if example else arrays[0]


def _key(key: Any) -> str:
    return json.dumps(key, ensure_ascii=False) if isinstance(key, str) else repr(key)


def _expression(example: Any) -> str:
    """Nested keys as Python has them; places in a Tuple are keys here, too."""
    if isinstance(example, str):
        return example
    return "{" + ", ".join(f"{_key(key)}: {_expression(inner)}" for key, inner in example.items()) + "}"
