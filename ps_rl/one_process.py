"""
`train(workers=0)`: a run in this process and this thread, without sockets and without children.

The machines of server and worker are those of every run, and so are the worker's loop, the records and the checkpoints.
This file replaces the sockets: Link hands messages over, and LocalServer carries out the server's effects at once.
"""

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import torch

from ps_client.machine.effects import Fail, Joined, Resolve, Transmit
from ps_client.machine.parameter_client import ParameterClient
from ps_client.shell.shard_connections import name_of_this_process
from ps_client.shell.zmq_client import Reply, ReplyFuture
from ps_common.errors import CheckpointError, RequestRefused, RunEnded
from ps_common.program.flags import Parsed, parse_with_run
from ps_common.program.reasons import reason_of
from ps_common.program.stop_signals import StopSignal
from ps_common.protocol.messages import Frame, Refused, StopRequest, ToServer, ToWorker, Welcome
from ps_common.protocol.names import as_text
from ps_common.protocol.wire import Buffer, read_to_server, read_to_worker, to_frames
from ps_rl.run import Callback, Run
from ps_rl.updates import Updates
from ps_server.machine.parameter_server import ParameterServer
from ps_server.records.run_records import RunRecords
from ps_server.serving import check_saved, storage_for
from ps_server.settings import ServerSettings
from ps_server.starting import machine_for
from ps_server.state import effects
from ps_server.state.effects import Effect, RecordEvaluation, RecordEvent, RecordReport, Send
from ps_server.storage.checkpoint_writer import CheckpointWriter
from ps_server.storage.run_storage import RunStorage
from rl_agent.environments.process_guard import leave_children_alone
from rl_agent.trial.run_check import custom_settings
from rl_cluster.cli import prepare
from rl_cluster.settings import ClusterSettings
from rl_worker.joining import Work
from rl_worker.settings import WorkerSettings

TICK_SECONDS = 0.25
WAIT_SECONDS = 0.01  # between two looks while the server makes the worker wait
DRIVER, NOWHERE = b"driver", "127.0.0.1:1"

log = logging.getLogger("ps-server")


class LocalServer:
    """A server and its shell. `on_tick` is called a few times a second, in the caller's thread."""

    def __init__(self, machine: ParameterServer, storage: RunStorage, on_tick: Callable[[], None]) -> None:
        self.machine = machine
        self.links: dict[bytes, Link] = {}
        self._on_tick = on_tick
        self._writer = CheckpointWriter(storage.checkpoints, storage.store)
        self._records = RunRecords(storage.folder, lambda: machine.run.spec if machine.run else None, endpoint="")
        self._next_tick = time.monotonic()
        self._reply: ToWorker | None = None  # to the newest message of the driver

    def receive(self, peer: bytes, message: ToServer, vector: Sequence[Buffer] = ()) -> None:
        received = read_to_server(list(to_frames(message, vector)))
        self._do(self.machine.receive(peer, *received, now=time.monotonic()))

    def ask(self, message: ToServer) -> ToWorker:
        """The reply to a message of an operator. Raises RequestRefused."""
        self._reply = None
        self.receive(DRIVER, message)
        if isinstance(reply := self._reply, Refused):
            raise RequestRefused(reply.code, reply.reason)
        assert reply is not None, "nothing here is done later"
        return reply

    def stop(self, reason: str, *, failed: bool = False) -> None:
        self.ask(StopRequest(request=1, reason=as_text(reason), failed=failed))

    def pass_time(self) -> None:
        """To be called often."""
        if (now := time.monotonic()) < self._next_tick:
            return
        self._next_tick = now + TICK_SECONDS
        for member in self.machine.membership.alive():
            member.last_heard = now  # it runs in this thread, however long a step takes, or a debugger stops in it
        self._do(self.machine.tick(now=now))
        self._records.tick(self.machine.status(now=now))
        self._on_tick()

    def close(self) -> None:
        """Save what the newest checkpoint lacks, and end the records."""
        for _ in range(2):  # again if the weights turn out ruined, and the run rolls back to a checkpoint
            if self.machine.lacks_last_checkpoint:
                self._do(self.machine.save(now=time.monotonic(), is_last=True))
        self._writer.close()
        self._records.close(self.machine.status(now=time.monotonic()))

    def _do(self, todo: Sequence[Effect]) -> None:
        for effect in todo:
            match effect:
                case Send() if effect.to == DRIVER:
                    self._reply = effect.message
                case Send() if effect.to in self.links:
                    self.links[effect.to].receive(effect)
                case effects.SaveCheckpoint():
                    self._do(self._saved(effect))
                case effects.ReloadCheckpoint():
                    self._do(self._reload())
                case effects.KeepCandidate():
                    self._writer.keep_candidate()
                case RecordReport() | RecordEvent() | RecordEvaluation():
                    self._records.add(effect)
                case effects.LogLine():
                    log.log(logging.WARNING if effect.warning else logging.INFO, "%s", effect.text)
                    self._do(self.machine.logged(effect, now=time.monotonic()))

    def _saved(self, checkpoint: effects.SaveCheckpoint) -> Sequence[Effect]:
        self._writer.write(checkpoint)
        written = self._writer.results.get()
        if written.error:
            return self.machine.checkpoint_failed(written.error)
        return self.machine.checkpoint_saved(written.place)

    def _reload(self) -> Sequence[Effect]:
        try:
            path, vectors, record = self._writer.newest()
        except CheckpointError as error:
            return self.machine.reload_failed(str(error), now=time.monotonic())
        return self.machine.reloaded(path.name, vectors, record, now=time.monotonic())


class Link:
    """A worker's connection to a server in this process; stands where a ZmqClient would."""

    _peers = itertools.count(1)

    def __init__(self, server: LocalServer, machine: ParameterClient) -> None:
        self.machine = machine
        self.welcome: ReplyFuture[Welcome] = ReplyFuture(self._drive)
        self._server, self._peer = server, b"worker %d" % next(self._peers)
        self._pending: dict[int, ReplyFuture[Reply]] = {}
        server.links[self._peer] = self
        self._do(machine.tick(now=time.monotonic()))

    def call(self, method: Callable[..., Any]) -> ReplyFuture[Reply]:
        """Mostly the reply is there when this returns."""
        self._server.pass_time()
        return self._call(method)

    def receive(self, send: Send) -> None:
        frames = to_frames(send.message, [send.snapshot.buffer] if send.snapshot else [])
        self._do(self.machine.receive(*read_to_worker(list(frames)), now=time.monotonic()))

    def show(self, frame: Frame) -> None:
        """Nobody watches."""

    def shared_array(self, size: int) -> None:
        """Nothing is copied anyway."""

    def say_goodbye(self, reason: str = "", *, failed: bool = False) -> None:
        self._call(lambda now: self.machine.leave(reason, failed=failed, now=now))

    def close(self, *, seconds: float) -> None:
        del self._server.links[self._peer]

    def _call(self, method: Callable[..., Any]) -> ReplyFuture[Reply]:
        reply: ReplyFuture[Reply] = ReplyFuture(self._drive)
        ticket, todo = method(now=time.monotonic())
        self._pending[ticket] = reply
        self._do(todo)
        return reply

    def _drive(self, reply: Any, timeout: float | None) -> None:
        while not reply.done() and timeout != 0:
            self._server.pass_time()
            self._do(self.machine.tick(now=time.monotonic()))
            time.sleep(WAIT_SECONDS)

    def _do(self, todo: Sequence[Any]) -> None:
        for effect in todo:
            match effect:
                case Transmit():
                    self._server.receive(self._peer, effect.message, effect.vector)
                case Resolve():
                    self._pending.pop(effect.ticket).set_result((effect.reply, effect.vector))
                case Joined():
                    self.welcome.set_result(effect.welcome)
                case Fail():
                    failed: list[Any] = [*self._pending.values()]
                    if effect.ticket:
                        failed = [self._pending.pop(effect.ticket)]
                    else:
                        self._pending.clear()
                        failed += [] if self.welcome.done() else [self.welcome]
                    for future in failed:
                        future.set_exception(effect.error)


def train_here(run: Run, flags: Sequence[str], callbacks: Sequence[Callback]) -> Run:
    """
    Train the run of these flags of rl-cluster to its end. Raises PsRlError, and whatever the environment or a callback
    raises, with its own traceback; the run is saved first.
    """
    leave_children_alone()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker: several wait for each other longer than small networks take
    updates = Updates(run.folder)
    updates.read()  # of a run that is resumed: callbacks get what comes after it

    def look() -> None:
        for update in updates.read():
            run.call(callbacks, update)

    try:
        _serve(run, flags, look)
    finally:
        run.ask_here = None
        torch.set_num_threads(threads)
    look()
    return run


def _serve(run: Run, flags: Sequence[str], on_tick: Callable[[], None]) -> None:
    cluster = parse_with_run(ClusterSettings, flags, prog="train", custom_settings=custom_settings)
    of_server = parse_with_run(ServerSettings, prepare(cluster)[1], prog="ps-server")
    with closing(storage_for(of_server)) as storage:
        if of_server.program.resume is None:
            storage.check_unused()
        machine = machine_for(of_server, storage, keys=None, now=time.monotonic())
        assert isinstance(machine, ParameterServer), "only --standby-of makes another"
        server = LocalServer(machine, storage, on_tick)
        run.ask_here = server.ask
        try:
            _work(server, cluster)
        except BaseException as error:
            server.stop(reason_of(error), failed=isinstance(error, Exception))
            error.add_note(f"the run is saved in {run.folder}: Run.open({str(run.folder)!r})")
            raise
        finally:
            server.close()
        check_saved(machine, storage)


def _work(server: LocalServer, cluster: Parsed[ClusterSettings]) -> None:
    name, hooks, device = name_of_this_process(), cluster.program.hook, cluster.program.device
    settings = WorkerSettings(
        server=NOWHERE, name=name, hook=hooks, device=device, imports=cluster.modules, resend_mib=0
    )
    flags = Parsed(settings, cluster.run, overrides={}, modules=cluster.modules)
    silent = StopSignal(listens=False)
    # An exception of the environment ends the run and reaches the script with its traceback: nothing is forgiven.
    work = Work(flags, name, silent, connection=lambda _, machine, **__: Link(server, machine), forgives=False)
    try:
        with suppress(RunEnded):
            work.work()
    finally:
        work.connections.close()
        work.environments.close()
