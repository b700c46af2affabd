"""
The agent of a run: the network that fits the environment, and the algorithm that acts with it.

Training and evaluation build their agents here, so that both get the same. The networks of an agent are in evaluation
mode, in which dropout is off; FlatNetwork.learning changes that while a loss is differentiated.
"""

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ps_common.errors import CheckpointError
from ps_common.protocol.tensors import Schema
from ps_common.settings import run_spec
from ps_common.settings.run_spec import RunSpec
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.algorithms.custom_algorithm import build_custom
from rl_agent.algorithms.replayed import ReplayedUpdates
from rl_agent.environments.interface import Environments
from rl_agent.environments.spaces import Spaces
from rl_agent.networks.compatibility import LONG_VECTOR, ONE_HOT, check_algorithm
from rl_agent.networks.flat_network import FlatNetwork, check_size, schema_of
from rl_agent.random_numbers import drawing
from rl_agent.rollouts import RolloutCollector, Watcher


def method_of(settings: run_spec.Method) -> Any:
    """The class of a method of ours, which takes these settings."""
    file, _, name = settings.code.partition(":")
    return getattr(importlib.import_module(f"rl_agent.algorithms.{file}"), name)


def build_agent(run: RunSpec, spaces: Spaces, *, device: torch.device, seed: int) -> Algorithm:
    """
    The algorithm of the run, with a freshly initialised network on `device`; `seed` is for sampling actions.

    The first weights come from the run's own seed, so that they are the same whichever worker seeds the run. What is
    drawn afterwards does not. Raises SettingsError when the settings do not fit the spaces.
    """
    check_algorithm(run, spaces)
    built: Algorithm
    with drawing(run.seed, device) if run.seed is not None else nullcontext():
        if isinstance(run.algorithm, run_spec.CustomAlgorithmSettings):
            built = build_custom(run, run.algorithm_name, spaces, device=device, seed=seed)
        else:
            built = method_of(run.algorithm).build(run.algorithm, run, spaces, device=device, seed=seed)
    for network in filter(None, (built.network, built.target_network)):
        network.eval()
    return built


def planned_network(run: RunSpec, spaces: Spaces) -> nn.Module:
    """
    The run's network to look at, drawn from other random numbers than an agent's: ours has no memory, and takes no time
    to initialize. Raises SettingsError when the settings do not fit the spaces.
    """
    with torch.random.fork_rng(devices=[]):
        if run.agent_parts:
            return build_agent(run, spaces, device=torch.device("cpu"), seed=0).network
        check_algorithm(run, spaces)
        assert isinstance(run.algorithm, run_spec.Method), "a custom algorithm is a part of the agent"
        with torch.device("meta"):
            network: nn.Module = method_of(run.algorithm).make_network(run.algorithm, run.network, spaces)
        return network


def planned_schema(run: RunSpec, spaces: Spaces) -> Schema:
    """The tensors of the planned network. Raises SettingsError when a run can have no such network."""
    network = planned_network(run, spaces)
    is_long = len(spaces.observations.shape) == 1 and spaces.observations.shape[0] > LONG_VECTOR
    shown = f"{spaces.observations} is shown, and {ONE_HOT}" if is_long else "give fewer or narrower --hidden layers"
    check_size(network, flag=f"--network {run.network.name}", remedy=shown)
    return schema_of(network)


def why_other(trained: Schema, schema: Schema) -> str:
    """One sentence on trained weights that do not fit the network of this schema: the first tensor that differs."""
    before = {spec.name: spec for spec in trained.specs}
    cause = "the network's settings differ, or what the environment shows or takes"
    for spec in schema.specs:
        if (was := before.pop(spec.name, None)) is None:
            return f"the weights are of another network: they have no tensor {spec}; {cause}"
        if was != spec:
            sizes = f"{list(was.shape)}, and is {list(spec.shape)} now"
            return f"the weights are of another network: tensor {spec.name!r} was {sizes}; {cause}"
    what = f"tensor {next(iter(before))!r} is not in it" if before else "its tensors are in another order"
    return f"the weights are of another network: {what}; {cause}"


def trained_agent(
    run: RunSpec, spaces: Spaces, schema: Schema, weights: Tensor, *, global_steps: int, seed: int, origin: str
) -> Algorithm:
    """
    The agent on the CPU with these weights [P], as after `global_steps`, which plays as its `begin_evaluation` says, if
    it has one. Raises CheckpointError, which names `origin`, for weights of another network.
    """
    with drawing(seed):  # the caller's generators do not move
        agent = build_agent(run, spaces, device=torch.device("cpu"), seed=seed)
    network = FlatNetwork(agent.network)
    if network.schema != schema:
        raise CheckpointError(f"{origin}: {why_other(schema, network.schema)}")
    network.load(weights)
    agent.begin_unroll(global_steps)
    getattr(agent, "begin_evaluation", lambda: None)()
    return agent


def collector_for(
    algorithm: Algorithm,
    environments: Environments,
    *,
    seed: int | None,
    most_steps: int = run_spec.LONGEST_UNROLL,
    watcher: Watcher | None = None,
) -> RolloutCollector:
    """
    A collector of unrolls, of up to `most_steps`, for the algorithm, which also acts. The environments are reset with
    `seed`.
    """
    return RolloutCollector(
        environments,
        algorithm,
        unroll_length=min(algorithm.unroll_length, most_steps),
        discount=algorithm.discount,
        seed=seed,
        commits_next_action=algorithm.commits_next_action,
        keeps_unrolls=algorithm.learns_while_acting,
        watcher=watcher,
    )


def keep_replay(agent: Algorithm, folder: Path | None, name: str, run_id: str, report: Callable[[str], None]) -> None:
    """Have the agent's replay memory, if it has one, in the folder's file of this worker. `report` gets sentences."""
    replay = getattr(agent, "replay", None)
    if not isinstance(replay, ReplayedUpdates):
        return
    if folder is None:
        report("the replay memory lies in memory, and begins empty (--replay-folder keeps it in a file)")
    else:
        replay.keep_in(str(folder / f"{name}.replay"), run_id, report)
