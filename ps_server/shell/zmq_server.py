"""
The shell of the server: one ROUTER socket, one thread. It receives and decodes messages, passes them to the machine,
and carries out the effects. A standby and a shard also talk to another server (OtherServers).

The machine decides everything. No peer can block this loop: send_queue.py keeps the replies that a peer does not read.
"""

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Iterator

import msgspec
import zmq

from ps_common.errors import CheckpointError, SettingsError, WireError
from ps_common.program.running_clock import RunningClock
from ps_common.protocol.messages import Hello, Refused, Welcome
from ps_common.protocol.status import Status
from ps_common.protocol.wire import read_to_server, take_places
from ps_common.release import at_this_release
from ps_common.sockets.zmq_sockets import bind, receive_frames
from ps_server.machine.dispatch import takes_an_admin
from ps_server.machine.flow_control import RECEIVE_BYTES
from ps_server.machine.parameter_server import ParameterServer
from ps_server.machine.parts import ANYBODY, Sender
from ps_server.shell.access_control import AccessControl
from ps_server.shell.connections import Connections
from ps_server.shell.log_lines import LogLines
from ps_server.shell.mapped_segments import MappedSegments
from ps_server.shell.memory import memory_of_this_process
from ps_server.shell.send_queue import SendQueue
from ps_server.shell.server_sockets import OtherServers, router_socket
from ps_server.standby.standby import Standby
from ps_server.state import effects
from ps_server.state.effects import Effect, PeerId, Recorded, RecordEvaluation, RecordEvent, RecordReport, Send
from ps_server.storage.arbiter import Arbiter
from ps_server.storage.checkpoint_writer import CheckpointWriter, Written

TICK_SECONDS = 0.25
BURST = 64  # messages between two looks at what else is due
SAVE_SECONDS = 60.0  # for the last checkpoint, at least
SLOWER = 4.0  # times the longest checkpoint so far, where that is more
LINGER_MILLISECONDS = 500  # for the last replies when the server exits

log = logging.getLogger("ps-server")


class ZmqServer:
    """Serves a ParameterServer or a Standby. The thread that calls `serve` owns it."""

    def __init__(
        self,
        server: ParameterServer | Standby,
        writer: CheckpointWriter,
        *,
        host: str,
        port: int,
        receive_bytes: int = RECEIVE_BYTES,
        access_control: AccessControl | None = None,
        clock: RunningClock | None = None,
    ) -> None:
        """Binds at once, port 0 to a free one, or raises SettingsError. Without `access_control` all may connect."""
        self._server = server
        self._clock = clock or RunningClock()  # by which the machine was made
        if isinstance(server, Standby):
            self._clock.on_pause = lambda seconds, now: server.was_away(seconds, now=now)
        self._writer = writer
        self.arbiter: Arbiter | None = None  # of a standby that has one
        self._context = zmq.Context()
        self._socket = router_socket(self._context)
        self._access_control = access_control
        if access_control is not None:
            access_control.install(self._context, self._socket)
        self._connections = self._counted(receive_bytes)  # before the socket is bound
        self._segments, self._lines = MappedSegments(), LogLines()
        self._replies = SendQueue(self._socket, place=self._segments.write_reply, renewed=self._renewed)
        self._exit = False
        self._on_record: Callable[[Recorded], None] | None = None
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._others = OtherServers(self._context, self._poller, access_control.server_keys if access_control else None)
        self.host, self.port = self._bind(host, port)

    @property
    def served(self) -> ParameterServer | None:
        """The server of the run; None at a standby before its promotion."""
        return self._server.server if isinstance(self._server, Standby) else self._server

    def serve(
        self,
        *,
        leaving: Callable[[], bool],
        on_tick: Callable[[Status], None],
        on_record: Callable[[Recorded], None],
    ) -> None:
        """Serve until the run ends or `leaving`. `on_tick` gets each status, `on_record` reports and events."""
        self._on_record, next_tick, is_leaving = on_record, self._clock.now(), False
        while not self._exit:
            if not is_leaving and leaving():
                is_leaving = True
                self._do(self._server.leave(now=self._clock.now()))
                continue
            due = min(next_tick, self._replies.next_due() or next_tick, self._connections.next_look)
            if self._poller.poll(int(max(0.0, due - self._clock.now()) * 1000) + 1):
                self._receive_from_servers()
                for frames in self._received():
                    self._handle(frames)
            else:
                self._connections.drained()
            self._connections.look(now=self._clock.now())
            self._collect_from_threads()
            now = self._clock.now()
            if now >= next_tick:
                next_tick = now + TICK_SECONDS
                self._tick(now=now)
                on_tick(self._server.status(now=now))
            self._replies.send_waiting(now=self._clock.now())

    def _tick(self, *, now: float) -> None:
        self._do(self._server.tick(now=now))
        if (served := self.served) is not None:
            served.process = memory_of_this_process() | {"connections": len(self._connections)}
            self._replies.serves(served.membership.count_alive())
        self._segments.keep_only({member.peer for member in served.membership.alive()} if served else ())

    def close(self) -> bool:
        """
        Write the last checkpoint, if anything changed since the newest, and release everything.

        Returns whether all checkpoints are on disk. A disk that accepts nothing is abandoned after a time limit.
        """
        end = time.monotonic() + max(SAVE_SECONDS, SLOWER * self._writer.longest_seconds)
        self._drain_writer(end)
        for _ in range(2):  # again if the weights turn out ruined, and the run rolls back to a checkpoint
            if self.served is not None and self.served.lacks_last_checkpoint:
                self._do(self.served.save(now=self._clock.now(), is_last=True))
                self._drain_writer(end)
        if not (is_written := self._writer.close(within_seconds=max(0.0, end - time.monotonic()))):
            log.warning("the disk does not accept the last checkpoint; the server exits without it")
        self._shut(linger=LINGER_MILLISECONDS)
        return is_written

    def _counted(self, receive_bytes: int) -> Connections:
        return Connections(
            self._context,
            self._socket,
            vector_bytes=self._most_vector_bytes,
            run_bytes=lambda: self._most_vector_bytes() if self.served is not None and self.served.version else 0,
            budget_bytes=receive_bytes,
            is_locked=self._access_control is not None,
        )

    def _bind(self, host: str, port: int) -> tuple[str, int]:
        try:
            return bind(self._socket, host, port)
        except (zmq.ZMQError, OSError, UnicodeError) as error:
            self._shut(linger=0)
            raise SettingsError(f"--host {host} --port {port}: cannot listen there: {error}") from error

    def _shut(self, *, linger: int) -> None:
        if self._access_control is not None:
            self._access_control.close()
        self._connections.close()
        self._others.close()
        self._segments.keep_only(())
        self._context.destroy(linger=linger)

    def _received(self) -> Iterator[list[zmq.Frame]]:
        for _ in range(BURST):
            try:
                frames = receive_frames(self._socket)
            except zmq.Again:
                self._connections.drained()
                return
            self._connections.delivered(frames, now=self._clock.now())
            yield frames

    def _receive_from_servers(self) -> None:
        for address, message, vector in self._others.received():
            if isinstance(self._server, Standby) and address == self._server.primary:
                self._do(self._server.receive_from_primary(message, vector, now=self._clock.now()))
            else:
                assert self.served is not None, "a standby follows its primary alone"
                self._do(self.served.receive_from_first_shard(message, now=self._clock.now()))

    def _handle(self, frames: list[zmq.Frame]) -> None:
        peer, key = frames[0].bytes, ""
        if (access := self._access_control) is not None:
            key = str(frames[0].get("User-Id"))
            if not access.is_authorised(key):
                return  # its key was taken away: its worker finds no server here, and no new connection
        try:
            header, places = take_places([frame.buffer for frame in frames[1:]])
            message, received = read_to_server(header, lambda: self._release_of(peer))
            most = 0 if places is None else self._most_vector_bytes()
            vector = self._segments.take(peer, message, received, places, most_bytes=most, now=self._clock.now())
        except WireError as error:
            self._do(self._server.unreadable(peer, at_this_release(str(error)), now=self._clock.now()))
            return
        if vector is None:
            reason = "the segment that the message names is not mapped here any more; send HELLO again"
            self._send(Send(peer, Refused(request=message.request, code="unknown_worker", reason=reason)))
            return
        if isinstance(message, Hello):
            self._segments.offer(peer, message)
        is_admin = access is None or (takes_an_admin(message) and access.is_admin(key))
        sender = ANYBODY if access is None else Sender(key=key, is_admin=is_admin)
        self._do(self._server.receive(peer, message, vector, now=self._clock.now(), sender=sender))

    def _most_vector_bytes(self) -> int:
        return self.served.pushes.most_vector_bytes if self.served is not None else 0

    def _release_of(self, peer: PeerId) -> str:
        """The release of the worker at this connection; "" for any other peer."""
        member = self.served.membership.known_at(peer) if self.served is not None else None
        return member.release if member is not None else ""

    def _do(self, todo: list[Effect]) -> None:
        for effect in todo:
            match effect:
                case Send():
                    self._send(effect)
                case effects.SendToServer():
                    self._others.send(effect)
                case effects.SaveCheckpoint():
                    self._writer.write(effect)
                case effects.ClaimRun() | effects.DropClaim() if self.arbiter is not None:
                    self.arbiter.do(effect)
                case effects.ReloadCheckpoint():
                    self._do(self._reload())
                case effects.KeepCandidate():
                    self._writer.keep_candidate()
                case RecordReport() | RecordEvent() | RecordEvaluation() if self._on_record is not None:
                    self._on_record(effect)
                case effects.LogLine():
                    if self._lines.add(effect, now=self._clock.now()) and self.served is not None:
                        self._do(self.served.logged(effect, now=self._clock.now()))
                case effects.Exit():
                    self._exit = True

    def _send(self, send: Send) -> None:
        now = self._clock.now()
        if isinstance(send.message, Welcome):
            memory = self._segments.proof(send.to, now=now)
            send = msgspec.structs.replace(send, message=msgspec.structs.replace(send.message, memory=memory))
        self._replies.send(send, now=now)

    def _renewed(self, send: Send, target: bool) -> Send:
        assert self.served is not None, "a server that sends weights has a run"
        return self.served.pushes.renewed(send, target=target)

    def _reload(self) -> list[Effect]:
        """Blocks the loop: until finite weights are back, there is nothing to serve."""
        assert self.served is not None, "a standby has no checkpoints to go back to"
        try:
            path, vectors, record = self._writer.newest()
        except CheckpointError as error:
            return self.served.reload_failed(str(error), now=self._clock.now())
        return self.served.reloaded(path.name, vectors, record, now=self._clock.now())

    def _collect_from_threads(self) -> None:
        while not self._writer.results.empty():
            self._collect(self._writer.results.get())
        while self.arbiter is not None and isinstance(self._server, Standby) and not self.arbiter.replies.empty():
            self._do(self._server.claimed(self.arbiter.replies.get(), now=self._clock.now()))

    def _drain_writer(self, end: float) -> None:
        """Wait until the checkpoint in progress, if any, is written, at most until `end`."""
        if self.served is not None and self.served.checkpoints.is_writing:
            with contextlib.suppress(queue.Empty):
                self._collect(self._writer.results.get(timeout=max(0.0, end - time.monotonic())))

    def _collect(self, written: Written) -> None:
        assert self.served is not None, "a standby writes no checkpoints"
        if written.error:
            self._do(self.served.checkpoint_failed(written.error))
            if written.replaced_in and not self.served.ending.fenced:
                self._do(self.served.fence("", epoch=written.replaced_in, now=self._clock.now()))
        else:
            self._do(self.served.checkpoint_saved(written.place))
