"""
The agent of a run: the network that fits the environment, and the algorithm that acts with it.

Training and evaluation build their agents here, so that both get the same. The networks of an agent are in evaluation
mode, in which dropout is off; FlatNetwork.learning changes that while a loss is differentiated.
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ps_common.errors import CheckpointError, SettingsError
from ps_common.protocol.names import check_name
from ps_common.protocol.tensors import Schema
from ps_common.settings import run_spec
from ps_common.settings.run_spec import RunSpec
from rl_agent.algorithms.a3c import A3C
from rl_agent.algorithms.action_values import EVALUATION_EPSILON, EpsilonGreedy
from rl_agent.algorithms.algorithm import Algorithm, Loss, Outlook
from rl_agent.algorithms.custom_algorithm import build_custom
from rl_agent.algorithms.dqn import Dqn
from rl_agent.algorithms.n_step_q import NStepQ
from rl_agent.algorithms.one_step_q import OneStepQ
from rl_agent.algorithms.one_step_sarsa import OneStepSarsa
from rl_agent.algorithms.replayed import ReplayedUpdates
from rl_agent.algorithms.sac import Sac
from rl_agent.environments.interface import Environments
from rl_agent.environments.spaces import ActionSpace, DiscreteActions, Spaces
from rl_agent.networks.compatibility import check_algorithm
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.random_numbers import drawing
from rl_agent.rollouts import RolloutCollector, Trajectory, Watcher

METHODS: dict[type, type[A3C] | type[EpsilonGreedy] | type[Sac]] = {
    run_spec.A3CSettings: A3C,
    run_spec.OneStepQSettings: OneStepQ,
    run_spec.OneStepSarsaSettings: OneStepSarsa,
    run_spec.NStepQSettings: NStepQ,
    run_spec.DqnSettings: Dqn,
    run_spec.SacSettings: Sac,
}


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
            method: Any = METHODS[type(run.algorithm)]  # which takes settings of this type
            built = method.build(run.algorithm, run, spaces, device=device, seed=seed)
    for network in filter(None, (built.network, built.target_network)):
        network.eval()
    return built


def trained_agent(
    run: RunSpec, spaces: Spaces, schema: Schema, weights: Tensor, *, global_steps: int, seed: int, origin: str
) -> Algorithm:
    """
    The agent on the CPU with these weights [P], as after `global_steps`. Methods of action values play with
    EVALUATION_EPSILON, not with training's ε: there each environment draws its own, and some play half of their actions
    at random. Raises CheckpointError, which names `origin`, for weights of another network.
    """
    with drawing(seed):  # the caller's generators do not move
        agent = build_agent(run, spaces, device=torch.device("cpu"), seed=seed)
    network = FlatNetwork(agent.network)
    if sentence := network.schema.difference(schema):
        raise CheckpointError(f"{origin}: the weights are of another network: {sentence}")
    network.load(weights)
    agent.begin_unroll(global_steps)
    if isinstance(agent, EpsilonGreedy):
        agent.play_with(EVALUATION_EPSILON)
    return agent


def collector_for(
    algorithm: Algorithm,
    environments: Environments,
    *,
    seed: int,
    most_steps: int = run_spec.LONGEST_UNROLL,
    watcher: Watcher | None = None,
    warn: Callable[[str], None] = lambda _: None,
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
        warn=warn,
    )


def keep_replay(agent: Algorithm, folder: Path | None, name: str, run_id: str, report: Callable[[str], None]) -> None:
    """Have the agent's replay memory, if it has one, in the folder's file of this worker. `report` gets sentences."""
    replay = getattr(agent, "replay", None)
    if not isinstance(replay, ReplayedUpdates):
        return
    if folder is None:
        report("the replay memory lies in memory, and begins empty (--replay-folder keeps it in a file)")
    else:
        replay.keep_in(folder / f"{name}.replay", run_id, report)


MOST_STEPS = 32  # of the trial's unroll
SEED = 0


def check_custom_agent(run: RunSpec, environments: Environments, *, flag: str) -> None:
    """
    The trial of a custom network or algorithm before anything is started for its run: one short unroll, one gradient.

    Every member that training uses is used once. Raises SettingsError that begins with the flag and names the return
    value of a wrong torso or algorithm, or what the custom code raises.
    """
    device = torch.device("cpu")
    agent = build_agent(run, environments, device=device, seed=SEED)
    network = FlatNetwork(agent.network)
    buffers = {name: buffer.clone() for name, buffer in agent.network.named_buffers()}
    agent.begin_unroll(0)
    unroll = collector_for(agent, environments, seed=SEED, most_steps=MOST_STEPS).collect()
    _check_outlook(agent, unroll, environments.actions, flag)
    batch = _first_batch(agent, unroll, flag)
    with network.learning():
        loss = agent.loss(batch)
        if not (isinstance(loss, Loss) and loss.total.dim() == 0 and loss.total.requires_grad):
            raise SettingsError(
                f"{flag}: its loss must be a Loss whose total is one number with a gradient, not {loss}"
            )
        gradient, _ = network.gradient_of(loss.total, clip=agent.gradient_clip)
    if not torch.isfinite(gradient).all():
        raise SettingsError(f"{flag}: its first gradient has NaN or Inf in it")
    for name, value in loss.meters.items():
        check_name(f"{flag}: its meter", name)
        if torch.as_tensor(value).numel() != 1:
            raise SettingsError(f"{flag}: its meter {name} must be one number, not {value}")
    for name, buffer in agent.network.named_buffers():
        if name not in buffers or not torch.equal(buffer, buffers[name]):
            raise SettingsError(
                f"{flag}: its buffer {name} changes while it acts or learns, but the server changes parameters alone, "
                "and each pull brings the buffer's first value back"
            )


def _check_outlook(agent: Algorithm, unroll: Trajectory, actions: ActionSpace, flag: str) -> None:
    """The outlook as the live game asks for it, of one observation. Raises SettingsError."""
    state = tuple(part[:1] for part in unroll.initial_state)
    outlook = agent.outlook(unroll.observations[0, :1], state, unroll.starts[0, :1])
    is_shown = isinstance(outlook, Outlook) and outlook.values.shape == (1,)
    if is_shown and outlook.probabilities is not None and isinstance(actions, DiscreteActions):
        is_shown = outlook.probabilities.shape[1:] == (actions.count,)
    if not is_shown:
        raise SettingsError(
            f"{flag}: its outlook must be an Outlook with one value for each observation, and one probability for each "
            f"action or None, not {outlook}"
        )


def _first_batch(agent: Algorithm, unroll: Trajectory, flag: str) -> Any:
    for batch in agent.batches(unroll):
        return batch
    raise SettingsError(f"{flag}: its batches() gave no batch of an unroll; each batch becomes one push")
