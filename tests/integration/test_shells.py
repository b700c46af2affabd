"""Both shells, in one process, over a real socket: where vectors go."""

import gc
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import pytest
import torch
import zmq

from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_client.shell.newest import Newest
from ps_client.shell.remote_parameters import RemoteParameters
from ps_client.shell.zmq_client import ZmqClient
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Wire
from ps_common.sockets import shared_memory
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.shell.zmq_server import ZmqServer
from ps_server.state.training_run import TrainingRun
from ps_server.state.weight_store import Snapshot
from ps_server.storage.checkpoint_writer import CheckpointWriter
from tests.segments import open_here

LINEAGE = Lineage.begun("0123456789abcdef", secret="s", draw=0)
SIZE = 20_000  # large enough for memory to be worth it
SCHEMA = Schema([TensorSpec("all", (SIZE,))])
RUN = run_from_dict({"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}, source="test")


@dataclass
class Worker:
    client: ZmqClient
    parameters: RemoteParameters

    def train(self, newest: Newest, pushes: int) -> Newest:
        """Each takes 1 from each weight; old weights of a reply are looked at again."""
        for _ in range(pushes):
            before, version = newest.weights, newest.version
            newest = self.parameters.push_pull(torch.ones(SIZE), computed_on=newest, steps=1)
            assert before is None or before.unique().tolist() == [1.0 - version]
        return newest


@dataclass
class Here:
    """A server in a thread, and its workers."""

    machine: ParameterServer
    shell: ZmqServer
    workers: list[Worker] = field(default_factory=list)
    by_wire: int = 0  # snapshots that were sent so

    def join(self, name: str, wire: Wire | None = None) -> Worker:
        machine = ParameterClient(
            Identity(
                worker_id=name, secret=token_hex(16), overrides={}, proposed_run={}, host="", environments=0
            ),
            patience_seconds=60, resend_bytes=2**24, now=time.monotonic(),
        )  # fmt: skip
        client = ZmqClient(f"127.0.0.1:{self.shell.port}", machine)
        worker = Worker(client, RemoteParameters([client], SCHEMA, wire or Wire()))
        self.workers.append(worker)
        worker.parameters.seed(torch.zeros(SIZE))
        return worker


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    machine = ParameterServer(
        TrainingRun(RUN, LINEAGE), lineage=LINEAGE, overrides={},
        limits=Limits(lease_seconds=20.0, checkpoint_seconds=1e6), now=time.monotonic(),
    )  # fmt: skip
    shell = ZmqServer(machine, CheckpointWriter(tmp_path), host="127.0.0.1", port=0)
    over = threading.Event()
    ignore = lambda _: None  # noqa: E731
    serve = threading.Thread(
        target=shell.serve, kwargs={"leaving": over.is_set, "on_tick": ignore, "on_record": ignore}
    )
    serve.start()
    here = Here(machine, shell)
    frames_of = shell._replies._frames_of

    def counted(snapshot: Snapshot) -> list[zmq.Frame]:
        here.by_wire += 1
        return frames_of(snapshot)

    monkeypatch.setattr(shell._replies, "_frames_of", counted)
    yield here
    while here.workers:
        here.workers.pop().client.close()
    over.set()
    serve.join()
    assert shell.close()
    gc.collect()
    assert open_here() == 0


def test_weights_that_somebody_keeps_are_not_written_over(here: Here) -> None:
    worker = here.join("a")
    kept = [worker.parameters.pull()]
    for _ in range(6):
        kept.append(worker.train(kept[-1], 1))
    values = [newest.weights.unique().tolist() for newest in kept if newest.weights is not None]
    assert values == [[-float(pushes)] for pushes in range(7)]
    assert here.by_wire > 0, "there are fewer slots than weights that are kept: some came by wire"


def test_without_proc_everything_goes_by_wire(here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_memory, "FOLDER", str(tmp_path / "none"))
    worker = here.join("a")
    worker.train(worker.parameters.pull(), 10)
    assert here.by_wire > 10
    assert not here.shell._segments._mapped


def test_a_message_that_names_an_unmapped_segment_must_be_preceded_by_hello(here: Here) -> None:
    worker = here.join("a")
    newest = worker.train(worker.parameters.pull(), 5)
    here.shell._segments.keep_only(())  # as after a lease
    before = here.by_wire
    newest = worker.train(newest, 10)
    assert newest.version == 16
    assert here.by_wire <= before + 1
    assert len(here.shell._segments._mapped) == 1
