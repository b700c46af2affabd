"""
The trained weights that are evaluated: those of a checkpoint, of a run folder, or of a live server.

The weights come with the run and the network that they belong to, and with a hash that names them.
"""

import hashlib
import logging
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from common.errors import CheckpointError, SettingsError
from common.protocol import messages
from common.protocol.codecs import codec_named
from common.protocol.tensors import Schema
from common.run_folder.checkpoint_file import read_weights
from common.run_folder.checkpoint_folder import best_first, first_sound
from common.run_folder.stored_run import fetch_sound
from common.settings.run_settings import run_from_dict
from common.settings.run_spec import RunSpec
from common.sockets.curve import ClientKeys
from common.sockets.request import ask
from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.networks.flat_network import FlatNetwork

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

    def load(self, agent: Algorithm) -> None:
        """Give the agent these weights and its ε of their step. Raises CheckpointError for another network's."""
        network = FlatNetwork(agent.network)
        if sentence := network.schema.difference(self.schema):
            raise CheckpointError(f"{self.origin}: its weights are of another network: {sentence}")
        network.load(self.weights)
        agent.begin_unroll(self.global_steps)


def trained_in(path: Path) -> Trained:
    """The weights of a checkpoint; of a run folder's best checkpoint, or of its newest sound one."""
    if not path.is_dir():
        return trained_as(path)
    found = first_sound(best_first(path), trained_as, lambda error: log.warning("%s; trying another", error))
    if found is None:
        raise CheckpointError(f"--checkpoint {path}: contains no sound checkpoints")
    return found[1]


def trained_in_store(url: str) -> Trained:
    """The weights of the best checkpoint in an object store, or of its newest sound one."""
    with tempfile.TemporaryDirectory() as folder:
        found = trained_as(fetch_sound(url, Path(folder), flag="--checkpoint"))
    return replace(found, origin=f"{url}, step {found.global_steps}")


def trained_as(path: Path) -> Trained:
    """The weights of one checkpoint file. Raises CheckpointError."""
    before = _file_sha256(path)
    run, schema, weights, record = read_weights(path)
    if _file_sha256(path) != before:
        raise CheckpointError(f"{path}: was replaced while it was being read; try again")
    steps, minutes = record["progress"]["global_steps"], record["progress"]["minutes"]
    return Trained(run, schema, weights, steps, minutes, f"{path}, step {steps}", before)


def trained_at(server: str, keys: ClientKeys | None) -> Trained:
    """The newest weights of a live server."""
    status, _ = ask(server, messages.StatusRequest(request=1), timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    assert isinstance(status, messages.StatusReply)
    if not status.schema:
        raise SettingsError(f"--server {server}: its run has no weights yet; try again when a worker has joined")
    reply, vector = ask(server, messages.Pull(request=2), timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    assert isinstance(reply, messages.Weights)
    schema = Schema(status.schema)
    weights = codec_named(reply.codec).decode(vector, schema.size).clone()
    run = run_from_dict(status.run, source=server)
    origin = f"{server}, version {reply.version}"
    sha256 = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
    return Trained(run, schema, weights, reply.global_steps, status.status.minutes, origin, sha256)


def _file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
