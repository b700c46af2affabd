"""
The trained weights that are evaluated: those of a checkpoint, of a run folder, or of a live server.

The weights come with the run and the network that they belong to, and with a hash that names them.
"""

import hashlib
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ps_common.errors import CheckpointError, SettingsError
from ps_common.protocol import messages
from ps_common.protocol.codecs import codec_named
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.checkpoint_file import (
    Checkpoint,
    joined,
    newest_set,
    read_best,
    read_checkpoint,
    read_weights,
)
from ps_common.run_folder.checkpoint_folder import best_first, first_sound, why_none
from ps_common.run_folder.paths import check_whole_run
from ps_common.run_folder.stored_run import fetch_sound, newest_set_in
from ps_common.settings.regular_file import MOST_FILE_BYTES, opened
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import ask, status_of
from rl_agent.agent import trained_agent
from rl_agent.algorithms.action_values import EVALUATION_EPSILON, ActionValueLearner
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.interface import Environments
from rl_eval.policy_folder import MODEL, read_model

REPLY_TIMEOUT_SECONDS = 30.0

log = logging.getLogger("rl-eval")


@dataclass(frozen=True)
class Trained:
    """Weights to evaluate, with the run and the network that they belong to."""

    run: RunSpec
    schema: Schema
    weights: Tensor  # [P]
    global_steps: int
    minutes: float  # of training
    origin: str  # the checkpoint or server, for messages
    sha256: str  # of the checkpoint file; of the weights of a live server

    def agent(
        self, environments: Environments, *, epsilon: float | None, greedy: bool, seed: int
    ) -> tuple[Algorithm, float | None]:
        """
        The agent with these weights, for evaluation, and its share of random actions; None of a method without one.

        The share is `epsilon`, or 0 if greedy, or EVALUATION_EPSILON. Raises CheckpointError for another network's
        weights, and SettingsError for an `epsilon` that the method cannot have.
        """
        agent = trained_agent(
            self.run,
            environments,
            self.schema,
            self.weights,
            global_steps=self.global_steps,
            seed=seed,
            origin=self.origin,
        )
        if isinstance(agent, ActionValueLearner):
            share = 0.0 if greedy else EVALUATION_EPSILON if epsilon is None else epsilon
            agent.play_with(share)
            return agent, share
        if epsilon is not None:
            raise SettingsError(f"--epsilon {epsilon:g}: belongs to methods of action values; {self.origin} has none")
        return agent, None


def trained_in(path: Path) -> Trained:
    """The weights of a checkpoint; of a run folder's best, or newest sound one; of all its shards; of a policy."""
    if path.name == MODEL or (path / MODEL).is_file():
        return _trained_policy(path / MODEL if path.is_dir() else path)
    if not path.is_dir():
        return trained_as(path)
    check_whole_run(path, flag=f"--checkpoint {path}")
    if len(shards := newest_set(path)) > 1:
        return _trained_by(read_best(shards, lambda error: log.warning("%s; trying another", error)), path)
    found = first_sound(best_first(path), trained_as, lambda error: log.warning("%s; trying another", error))
    if found is None:
        raise CheckpointError(f"--checkpoint {path}: {why_none(path)}")
    return found[1]


def trained_in_store(url: str) -> Trained:
    """The weights of the best checkpoint in an object store, or of its newest sound one; of all shards."""
    flag = "--checkpoint"
    with tempfile.TemporaryDirectory() as folder:
        if len(shards := newest_set_in(url, flag=flag)) > 1:
            places = [Path(folder, shard) for shard in shards]
            for place in places:
                place.mkdir()
            paths = [fetch_sound(f"{url.rstrip('/')}/{place.name}", place, flag=flag) for place in places]
            return _trained_by(list(map(read_checkpoint, paths)), url)
        found = trained_as(fetch_sound(url, Path(folder), flag=flag))
    return replace(found, origin=f"{url}, step {found.global_steps}")


def _trained_by(checkpoints: Sequence[Checkpoint], source: Path | str) -> Trained:
    """The whole weights of a run of whose shards these are. Raises CheckpointError."""
    schema, vectors = joined(checkpoints)
    first, steps = checkpoints[0][1], [record.progress.global_steps for _, record in checkpoints]
    at = f"step {steps[0]}" if len(set(steps)) == 1 else f"steps {min(steps)} to {max(steps)}"
    return Trained(
        run_from_dict(first.run, source=str(source)),
        schema,
        vectors["weights"],
        steps[0],
        first.progress.minutes,
        f"{source}, {len(checkpoints)} shards, {at}",
        _sha256(vectors["weights"]),
    )


def trained_as(path: Path) -> Trained:
    """The weights of one checkpoint file. Raises CheckpointError."""
    before = _file_sha256(path)
    run, schema, weights, record = read_weights(path)
    if _file_sha256(path) != before:
        raise CheckpointError(f"{path}: was replaced while it was being read; try again")
    steps = record.progress.global_steps
    return Trained(run, schema, weights, steps, record.progress.minutes, f"{path}, step {steps}", before)


def _trained_policy(path: Path) -> Trained:
    """The weights of an exported policy. Raises CheckpointError."""
    policy = read_model(path)
    steps, minutes = policy.global_steps, policy.minutes
    return Trained(
        policy.run, policy.schema, policy.weights, steps, minutes, f"{path}, step {steps}", _file_sha256(path)
    )


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
    return Trained(run, schema, weights, steps, status.status.minutes, origin, _sha256(weights))


def _pulled(server: str, schema: Schema, keys: ClientKeys | None) -> tuple[Tensor, int, int]:
    """The newest weights of a server, their version, and T."""
    reply, vector = ask(server, messages.Pull(request=2), timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    if not isinstance(reply, messages.Weights):
        raise SettingsError(f"--server {server}: has no weights yet; try again when a worker has joined")
    return codec_named(reply.codec).decode(vector, schema.size).clone(), reply.version, reply.global_steps


def _sha256(weights: Tensor) -> str:
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


def _file_sha256(path: Path) -> str:
    try:
        with opened(path, most_bytes=MOST_FILE_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
