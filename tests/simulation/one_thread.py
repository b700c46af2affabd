"""
Real training against a real server, in one thread and without sockets: the two machines hand each other bytes.

The worker's loop, its algorithm and RemoteParameters are those of life, and so are the server's run and optimizers.
"""

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ps_client.machine.effects import Fail, Reconnect, Resolve, Transmit
from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_client.shell.remote_parameters import RemoteParameters
from ps_common.errors import RunEnded
from ps_common.protocol import messages
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.wire import read_to_server, read_to_worker, to_frames
from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.settings.run_spec import RunSpec
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.state.effects import SaveCheckpoint, Send
from ps_server.state.training_run import TrainingRun
from rl_agent.agent import build_agent, collector_for
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.interface import Environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.normalization import measure_normalization
from rl_worker.training import train

PATIENCE_SECONDS = 60.0  # simulated, for an answer
RESEND_BYTES = 0  # the server is saved in the instant in which it is restarted
PEER = b"the worker's connection"


@dataclass(repr=False)
class OneThread:
    """
    A server and the connection of one worker to it; stands where a ZmqClient would.

    Before it hears of a push in `restarts_before` (sequences) the server is stopped, and another one goes on from the
    checkpoint file that it wrote.
    """

    run: RunSpec
    folder: Path | None = None
    restarts_before: Collection[int] = ()
    now: float = 100.0
    lineage: Lineage = field(default_factory=lambda: Lineage.begun(16 * "1", secret="s", draw=0))
    lives: int = 1  # of the server
    history: list[Tensor] = field(default_factory=list)  # the weights as seeded, and after each push
    _futures: dict[int, Future[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.server = self._server(None)
        self.machine = ParameterClient(
            Identity(
                worker_id="w",
                secret="0123456789abcdef",
                overrides={},
                proposed_run=self.run.to_dict(),
                host="here",
                environments=0,
            ),
            patience_seconds=PATIENCE_SECONDS,
            resend_bytes=RESEND_BYTES,
            now=self.now,
        )
        self._do(self.machine.tick(now=self.now))

    @property
    def training_run(self) -> TrainingRun:
        assert self.server.run is not None
        return self.server.run

    def call(self, method: Callable[..., Any]) -> Future[Any]:
        """As ZmqClient's, but the answer is here when it returns."""
        ticket, effects = method(now=self.now)
        future = self._futures[ticket] = Future()
        self._do(effects)
        while not future.done():
            self.now += 0.1
            self._do(self.machine.tick(now=self.now))
        return future

    def _server(self, run: TrainingRun | None) -> ParameterServer:
        return ParameterServer(
            run,
            lineage=self.lineage,
            overrides={},
            limits=Limits(lease_seconds=1e6, checkpoint_seconds=1e9),
            now=self.now,
        )

    def _do(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case Transmit():
                    self._to_server([bytes(frame) for frame in to_frames(effect.message, effect.vector)])
                case Resolve():
                    self._futures.pop(effect.ticket).set_result((effect.reply, effect.vector))
                case Fail():
                    failed = [effect.ticket] if effect.ticket else list(self._futures)
                    for ticket in failed:
                        self._futures.pop(ticket).set_exception(effect.error)
                case Reconnect():
                    raise AssertionError("nothing is lost here")

    def _to_server(self, frames: list[bytes]) -> None:
        message, vector = read_to_server(frames)
        if isinstance(message, messages.Push) and message.sequence in self.restarts_before:
            self.restarts_before = set(self.restarts_before) - {message.sequence}
            self._restart()
        effects = self.server.receive(PEER, message, vector, now=self.now)
        if self.server.version > len(self.history):
            self.history.append(self.training_run.weights.flat.clone())
        for effect in effects:
            if isinstance(effect, Send):
                answer = to_frames(effect.message, [effect.snapshot.buffer] if effect.snapshot else [])
                reply, buffers = read_to_worker([bytes(frame) for frame in answer])
                self._do(self.machine.receive(reply, buffers, now=self.now))
            if isinstance(effect, SaveCheckpoint):
                self.server.checkpoint_saved("nowhere")

    def _restart(self) -> None:
        assert self.folder is not None
        (saved,) = (effect for effect in self.server.save(now=self.now) if isinstance(effect, SaveCheckpoint))
        path = self.folder / f"checkpoint-{self.lineage.epoch}.safetensors"
        write_checkpoint(path, saved.vectors, saved.record)
        vectors, record = read_checkpoint(path)
        run = TrainingRun.restored(vectors, record, now=self.now)
        self.lineage = run.lineage = run.lineage.resumed(draw=0)
        self.lives += 1
        self.server = self._server(run)


def train_to_the_end(connection: OneThread, environments: Environments, *, seed: int = 0) -> Algorithm:
    """Train the connection's run until its budget is spent; the algorithm, with the server's last weights."""
    agent = build_agent(connection.run, environments, device=torch.device("cpu"), seed=seed)
    measure_normalization(agent.network, environments, seed=seed)
    network = FlatNetwork(agent.network, blocks=agent.blocks)
    parameters = RemoteParameters([connection], network.schema, connection.run.wire)  # type: ignore[list-item]
    parameters.seed(network.weights)
    collector = collector_for(agent, environments, seed=seed)
    with pytest.raises(RunEnded):
        train(parameters, network, collector, agent)
    network.load(connection.training_run.weights.flat)
    return agent
