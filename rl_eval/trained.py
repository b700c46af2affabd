"""
The trained agent that is evaluated: with the weights that are kept in some place, or those of a live server.
"""

import torch
from torch import Tensor

from ps_common.errors import SettingsError
from ps_common.protocol import messages
from ps_common.protocol.codecs import codec_named
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.trained import Trained, sha256_of
from ps_common.settings.run_settings import run_from_dict
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import ask, status_of
from rl_agent.agent import trained_agent
from rl_agent.algorithms.action_values import EVALUATION_EPSILON, ActionValueLearner
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.spaces import Spaces
from rl_eval.policy_folder import ExportedPolicy

REPLY_TIMEOUT_SECONDS = 30.0


def agent_of(
    trained: Trained | ExportedPolicy, spaces: Spaces, *, epsilon: float | None, greedy: bool, seed: int
) -> tuple[Algorithm, float | None]:
    """
    The agent with these weights, for evaluation, and its share of random actions; None of a method without one.

    The share is `epsilon`, or 0 if greedy, or EVALUATION_EPSILON. Raises CheckpointError for another network's
    weights, and SettingsError for an `epsilon` that the method cannot have.
    """
    agent = trained_agent(
        trained.run,
        spaces,
        trained.schema,
        trained.weights,
        global_steps=trained.global_steps,
        seed=seed,
        origin=trained.origin,
    )
    if isinstance(agent, ActionValueLearner):
        share = 0.0 if greedy else EVALUATION_EPSILON if epsilon is None else epsilon
        agent.play_with(share)
        return agent, share
    if epsilon is not None:
        raise SettingsError(f"--epsilon {epsilon:g}: belongs to methods of action values; {trained.origin} has none")
    return agent, None


def trained_at(server: str, keys: ClientKeys | None) -> Trained:
    """The newest weights of a live server."""
    status = status_of(server, timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    if not status.schema:
        raise SettingsError(f"--server {server}: its run has no weights yet; try again when a worker has joined")
    shard, schema = status.status.shard, Schema(status.schema)
    servers = dict(enumerate(shard.addresses, 1)) | {shard.number: server}
    pulled = [_pulled(servers[number], schema.of_shard(number, shard.of), keys) for number in range(1, shard.of + 1)]
    weights, version, steps = torch.cat([one[0] for one in pulled]), *pulled[0][1:]
    run = run_from_dict(status.run, source=server)
    origin = f"{server}, version {version}"
    of_run = status.status.run_id, version
    return Trained(run, schema, weights, steps, status.status.minutes, origin, sha256_of(weights), *of_run)


def _pulled(server: str, schema: Schema, keys: ClientKeys | None) -> tuple[Tensor, int, int]:
    """The newest weights of a server, their version, and T."""
    pull, within = messages.Pull(request=2), REPLY_TIMEOUT_SECONDS
    reply, vector = ask(server, pull, timeout_seconds=within, keys=keys, most_bytes=schema.bytes)
    if not isinstance(reply, messages.Weights):
        raise SettingsError(f"--server {server}: has no weights yet; try again when a worker has joined")
    return codec_named(reply.codec).decode(vector, schema.size).clone(), reply.version, reply.global_steps
