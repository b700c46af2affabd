"""
The start card: what a run will see, do and learn with, in a few lines before it begins.

It is made from settings and spaces.
"""

import math
from typing import Any

from ps_common.protocol.names import is_import_path
from ps_common.settings.run_files import is_ppo
from ps_common.settings.run_spec import IMITATION_BYTES, A3CSettings, CustomAlgorithmSettings, RunSpec
from rl_agent.environments.spaces import ActionSpace, BoxActions, DiscreteActions, ObservationSpace, Spaces
from rl_agent.networks.compatibility import torso_name

LABEL_COLUMNS = 14
LARGE_BYTES = 2**30


def start_card(run: RunSpec, spaces: Spaces) -> list[str]:
    """One line each: label and value."""
    card = {
        "observations": f"{spaces.observations}, {_normalization(run, spaces.observations)}",
        "actions": _actions(spaces.actions),
        "network": _network(run, spaces.observations),
        "rewards": _rewards(run),
        "method": _method(run),
        "optimizer": _optimizer(run),
        "memory": _memory(run, spaces.observations),
    }
    return [card_line(label, value) for label, value in card.items() if value]


def card_line(label: str, value: str) -> str:
    """One line of the card."""
    return f"  {label:<{LABEL_COLUMNS}}{value}"


def _normalization(run: RunSpec, observations: ObservationSpace) -> str:
    match run.network.normalization:
        case "random_play":
            return "normalised by random play"
        case "none":
            return "bytes divided by 255" if observations.pixels else "as they are"
        case "auto" if observations.parts and is_import_path(run.network.name):
            return "as they are"  # a custom torso reads packed observations itself
    return "bytes divided by 255" if observations.pixels else "numbers normalised by those seen so far"


def _actions(actions: ActionSpace) -> str:
    match actions:
        case DiscreteActions():
            return f"one of {actions.count}"
        case BoxActions():
            return f"{len(actions.low)} real numbers" if len(actions.low) > 1 else "a real number"
    return f"{len(actions.counts)} choices, of {', '.join(map(str, actions.counts))}"


def _network(run: RunSpec, observations: ObservationSpace) -> str:
    settings = run.network
    shapes = [part.shape for part in observations.parts if part.kind != "mask"] or [observations.shape]
    sizes = ["×".join(map(str, shape)) for shape in shapes]
    if is_import_path(settings.name):
        names = f"{settings.name} on {' and '.join(sizes)}"  # one torso, of all parts
    else:
        names = ", ".join(f"{torso_name(settings, shape)} on {size}" for shape, size in zip(shapes, sizes, strict=True))
    hidden = f", hidden layers of {' '.join(map(str, settings.hidden))}" if settings.hidden else ""
    memory = f", LSTM of {settings.lstm}" if settings.lstm else ""
    return names + hidden + memory + (", policy and value apart" if settings.separate else "")


def _rewards(run: RunSpec) -> str:
    settings = run.algorithm
    if isinstance(settings, CustomAlgorithmSettings):
        return "as its algorithm takes them; scores are the true ones"
    clipped = f"clipped to ±{settings.reward_clip:g}" if settings.reward_clip else "not clipped"
    divided = (
        ", divided by the standard deviation of their discounted sum"
        if settings.reward_normalization == "returns"
        else ""
    )
    scaled = f", times {settings.reward_scale:g}" if settings.reward_scale != 1 else ""
    return f"{clipped}{divided}{scaled}; scores are the true ones"


def _method(run: RunSpec) -> str:
    settings: Any = run.algorithm
    steps = f"{settings.unroll_length} steps × {run.environment.envs} environments a worker and unroll"
    played = f"{run.algorithm_name}{' with the clipped surrogate (PPO)' if is_ppo(run) else ''}: {steps}"
    words = [played]
    if isinstance(settings, CustomAlgorithmSettings):
        return played
    words.append(f"discount {settings.discount:g}")
    if isinstance(settings, A3CSettings):
        words.append(f"GAE {settings.gae_lambda:g}")
        if settings.imitation_weight:
            words.append(f"self-imitation {settings.imitation_weight:g}")
        if settings.mirror_images:
            words.append("mirror images")
    if getattr(settings, "epochs", 1) * getattr(settings, "minibatches", 1) > 1:
        epochs = "1 epoch" if settings.epochs == 1 else f"{settings.epochs} epochs"
        words.append(f"{epochs} of {settings.minibatches} minibatches")
    return ", ".join(words)


def _memory(run: RunSpec, observations: ObservationSpace) -> str:
    """A warning where the observations that a worker keeps take LARGE_BYTES or more: of an unroll and, as float32, a
    minibatch of it, and those of self-imitation, with returns that have not ended; else ""."""
    settings: Any = run.algorithm
    step_bytes = math.prod(observations.shape) * observations.dtype.itemsize
    steps = settings.unroll_length * run.environment.envs
    floats = 4 // observations.dtype.itemsize * step_bytes * steps // getattr(settings, "minibatches", 1)
    remembered = 3 * IMITATION_BYTES if getattr(settings, "imitation_weight", 0) else 0
    most = getattr(settings, "imitation_capacity", 0) * 3 * step_bytes
    total = step_bytes * steps + floats + min(remembered, most)
    if total < LARGE_BYTES:
        return ""
    return f"{total / 2**30:.1f} GiB of observations in each worker; a smaller --envs or --unroll-length takes less"


def _optimizer(run: RunSpec) -> str:
    schedule = run.schedule
    moves = f" to {schedule.final_learning_rate:g} at step {schedule.anneal_steps:,}" if schedule.anneal_steps else ""
    return f"{type(run.optimizer).__struct_config__.tag}, learning rate {schedule.learning_rate:g}{moves}"
