"""
The trial of a custom network or algorithm before anything is started for its run.

One short unroll and one gradient use each member once that training uses. Relations find what no error shows: nothing
but parameters and buffers travels to other workers, checkpoints and evaluations, so nothing else may decide what a
network computes; and a policy acts on one observation at a time.
"""

import time
from collections.abc import Mapping
from typing import Any

import torch
from msgspec import structs
from torch import Tensor, nn

from ps_common.errors import PsRlError, SettingsError
from ps_common.protocol.names import check_name
from ps_common.protocol.tensors import Schema
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent, collector_for
from rl_agent.algorithms.algorithm import Algorithm, Loaded, Loss, Prediction
from rl_agent.environments.interface import Environments
from rl_agent.environments.spaces import ActionSpace, DiscreteActions
from rl_agent.networks.custom_network import sharing
from rl_agent.networks.flat_network import FlatNetwork, check_size, schema_of
from rl_agent.random_numbers import begin_with, drawing
from rl_agent.rollouts import State, Trajectory

MOST_STEPS = 32  # of the trial's unroll
MOST_UNROLLS, LEAP_STEPS = 200, 10_000  # of them until a first batch comes, and T between two of them
MOST_SECONDS = 2.0  # for them
SEED, OTHER_SEED = 0, 1
# Of the largest number: two equal networks differ by less, and so does a row that is computed alone or among many.
SAME, SAME_ROW = 1e-6, 1e-3


def check_custom_agent(run: RunSpec, environments: Environments, *, flag: str) -> Schema:
    """
    The tensors of its network.

    Raises SettingsError that begins with the flag, and names the return value of a wrong torso or algorithm, what does
    not travel, or what the custom code raises.
    """
    with drawing(SEED):
        agent = _built(run, environments, SEED)
        check_size(agent.network, flag=flag, remedy="make it smaller")
        _check_target(agent, flag)
        agent.begin_unroll(0)
        unroll = collector_for(agent, environments, seed=SEED, most_steps=MOST_STEPS).collect()
        _check_prediction(agent, unroll, environments.actions, flag)
        seen = unroll.observations.flatten(0, 1)
        state = agent.initial_state(len(seen))
        before = _shown(agent, seen, state)
        _check_again(agent, seen, state, before, flag)
        _check_rows(agent, seen, state, before["values"], flag)
        _check_learning(agent, unroll, flag)
        _check_again(agent, seen, state, before, flag)
        _check_travels_alone(run, environments, unroll, flag)
        return schema_of(agent.network)


def _built(run: RunSpec, environments: Environments, seed: int) -> Algorithm:
    """The agent as a process builds it whose random numbers begin with this seed."""
    begin_with(seed)
    return build_agent(structs.replace(run, seed=seed), environments, device=torch.device("cpu"), seed=SEED)


def _networks(agent: Algorithm) -> dict[str, nn.Module]:
    return {
        name: network
        for name in ("network", "target_network")
        if isinstance(network := getattr(agent, name), nn.Module)
    }


def _check_target(agent: Algorithm, flag: str) -> None:
    """Raises SettingsError when the target network is not a second one."""
    tensors: dict[str, Tensor] = {}
    for name, network in _networks(agent).items():
        tensors |= {f"{name}.{path}": tensor for path, tensor in network.named_parameters()}
    if shared := sharing(tensors):
        raise SettingsError(
            f"{flag}: its {shared[1]} shares memory with {shared[0]}, so that target weights would replace those that "
            "learn; build the target network a second time"
        )


def _check_prediction(agent: Algorithm, unroll: Trajectory, actions: ActionSpace, flag: str) -> None:
    """The prediction as the live game asks for it, of one observation. Raises SettingsError."""
    state = tuple(part[:1] for part in unroll.initial_state)
    prediction = agent.predict(unroll.observations[0, :1], state, unroll.starts[0, :1])
    is_shown = isinstance(prediction, Prediction) and prediction.values.shape == (1,)
    if is_shown and prediction.probabilities is not None and isinstance(actions, DiscreteActions):
        is_shown = prediction.probabilities.shape[1:] == (actions.count,)
    if not is_shown:
        raise SettingsError(
            f"{flag}: its prediction must be a Prediction with one value for each observation, and one probability for "
            f"each action or None, not {prediction}"
        )


def _shown(agent: Algorithm, seen: Tensor, state: State) -> dict[str, Tensor]:
    """What the agent computes for observations [N, ...] without learning."""
    prediction = agent.predict(seen, state, torch.ones(len(seen), dtype=torch.bool))
    shown = {"values": prediction.values, "probabilities": prediction.probabilities}
    return {name: tensor.clone() for name, tensor in shown.items() if tensor is not None}


def _check_again(agent: Algorithm, seen: Tensor, state: State, before: Mapping[str, Tensor], flag: str) -> None:
    """With the same weights the same call must give the same bits. Raises SettingsError."""
    if difference := _difference(before, _shown(agent, seen, state), bound=0.0):
        raise SettingsError(
            f"{flag}: its {difference} change between two calls with the same observations and weights: what forward "
            "counts or draws is known to no other process. Only parameters and buffers travel; leave random numbers "
            "to training, as in F.dropout(x, training=self.training)"
        )


def _check_rows(agent: Algorithm, seen: Tensor, state: State, among: Tensor, flag: str) -> None:
    """Each row must be what it is without the others. Raises SettingsError."""
    for row in (0, len(seen) - 1):
        alone = _shown(agent, seen[row : row + 1], tuple(part[row : row + 1] for part in state))["values"]
        finite = bool(torch.isfinite(alone).all() and torch.isfinite(among).all())
        if not finite or _difference(
            {"value": among[row : row + 1]}, {"value": alone}, bound=SAME_ROW * float(among.abs().max())
        ):
            what = "depends on the other observations of the batch" if finite else "is no finite number"
            raise SettingsError(
                f"{flag}: its value for one observation {what} (by itself {float(alone[0]):g}, among {len(seen)} "
                f"{float(among[row]):g}). A policy acts on one observation at a time: take no mean, standard deviation "
                "or softmax over the batch (dim 0); nn.LayerNorm and nn.GroupNorm take them over each observation"
            )


def _check_learning(agent: Algorithm, unroll: Trajectory, flag: str) -> None:
    """The loss, its meters and its gradient. Raises SettingsError."""
    try:
        network = FlatNetwork(agent.network, blocks=agent.blocks)
    except PsRlError as error:
        raise SettingsError(f"{flag}: {error}") from error
    buffers = {name: buffer.clone() for name, buffer in agent.network.named_buffers()}
    if (batch := _first_batch(agent, unroll)) is None:
        return
    with network.learning():
        loss = agent.loss(batch)
        if not (isinstance(loss, Loss) and loss.total.dim() == 0 and loss.total.requires_grad):
            raise SettingsError(
                f"{flag}: its loss must be a Loss whose total is one number with a gradient, not {loss}"
            )
        if unknown := set(loss.blocks) - {block.name for block in agent.blocks}:
            raise SettingsError(f"{flag}: its loss moves block {min(unknown)!r}, which its `blocks` do not have")
        gradient, _ = network.gradient_of(loss.total, clip=agent.gradient_clip, blocks=loss.blocks)
    if not torch.isfinite(gradient).all():
        raise SettingsError(f"{flag}: its first gradient has NaN or Inf in it")
    for name, value in loss.meters.items():
        check_name(f"{flag}: its meter", name)
        if torch.as_tensor(value).numel() != 1:
            raise SettingsError(f"{flag}: its meter {name} must be one number, not {value}")
    for name, buffer in agent.network.named_buffers():
        if name not in buffers or not torch.equal(buffer, buffers[name]):
            raise SettingsError(
                f"{flag}: its buffer {name} changes while it acts or learns, but the server changes only parameters, "
                "and each pull brings the buffer's first value back"
            )


def _first_batch(agent: Algorithm, unroll: Trajectory) -> Any:
    """
    The first batch of an unroll that comes again and again, later and later in the run: a replay memory fills up, and
    learning starts. None where none comes soon.
    """
    end = time.monotonic() + MOST_SECONDS
    for number in range(MOST_UNROLLS):
        agent.begin_unroll(number * LEAP_STEPS)
        for batch in agent.batches(unroll):
            return batch
        if time.monotonic() > end:
            break
    return None


def _check_travels_alone(run: RunSpec, environments: Environments, unroll: Trajectory, flag: str) -> None:
    """Two agents of other random numbers must compute the same with equal weights. Raises SettingsError."""
    first, second = (_built(run, environments, seed) for seed in (SEED, OTHER_SEED))
    for one, other in zip(_networks(first).values(), _networks(second).values(), strict=True):
        FlatNetwork(other).load(FlatNetwork(one).weights)
    for agent in (first, second):
        agent.loaded(Loaded(epoch=1, version=1, global_steps=0, workers=1, went_back=False))
    if difference := _difference(_computed(first, unroll), _computed(second, unroll)):
        raise SettingsError(
            f"{flag}: its output depends on more than its parameters and buffers: two that were built alike and have "
            f"equal weights differ in their {difference}, and so would all workers and rl-eval. Register what decides "
            "it: layers of a plain list in an nn.ModuleList, tensors by register_buffer, a second network as a module "
            "of the first; and take random numbers of an algorithm from a generator of its seed"
        )


def _computed(agent: Algorithm, unroll: Trajectory) -> dict[str, Tensor]:
    """What a fresh agent computes of another's unroll, in the order in which training asks for it."""
    begin_with(SEED)
    agent.begin_unroll(0)
    seen = unroll.observations.flatten(0, 1)
    shown = _shown(agent, seen, agent.initial_state(len(seen)))
    batch = _first_batch(agent, unroll)
    return shown if batch is None else shown | {"loss": agent.loss(batch).total.detach()}


def _difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor], *, bound: float | None = None) -> str:
    """The name of the first tensor that differs by more than the bound, or than rounding; "" when none does."""
    for name, tensor in one.items():
        most = SAME * float(tensor.abs().max()) if bound is None else bound
        if not bool(((tensor - other[name]).abs() <= most).all()):  # NaN is not
            return name
    return ""
