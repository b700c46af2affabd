"""
The shell of the server: one ROUTER socket, one thread. It receives, decodes, asks the machine, and does what it says.
A standby listens to its primary too (primary_link.py).

Nothing is decided here, and nobody can make this loop wait: replies.py has what peers do not read at once.
"""

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import zmq

from common.errors import CheckpointError, SettingsError, WireError
from common.protocol.messages import Hello, Refused, Welcome
from common.protocol.status import Status
from common.protocol.wire import MAX_FRAME_BYTES, Places, read_to_server, take_places
from common.sockets.curve import ClientKeys
from common.sockets.zmq_sockets import bind, receive_frames
from ps_server.machine.effects import Effect, Exit, Note, Recall, Reported, SaveCheckpoint, Send, SendToPrimary
from ps_server.machine.flow_control import RECEIVE_BYTES
from ps_server.machine.membership import PeerId
from ps_server.machine.parameter_server import ParameterServer
from ps_server.machine.phases import ANYBODY, Sender
from ps_server.replication.standby import Standby
from ps_server.shell.access_control import AccessControl
from ps_server.shell.checkpoint_writer import CheckpointWriter, Written
from ps_server.shell.connections import Connections
from ps_server.shell.mapped_segments import MappedSegments
from ps_server.shell.noted_lines import NotedLines
from ps_server.shell.primary_link import PrimaryLink
from ps_server.shell.send_queue import Replies

TICK_SECONDS = 0.25
AWAY_SECONDS = 0.5  # a tick that is later than this: workers spoke, perhaps, and were not heard
BURST = 64  # messages between two looks at the clock
RECEIVE_HIGH_WATER = 16  # whole messages of one peer, received and not yet looked at
SEND_HIGH_WATER = 8  # whole messages for one peer, not yet taken by its connection
SAVE_SECONDS = 60.0  # for the last checkpoint; longer where others took long
SLOWER = 4.0  # times the longest so far
LINGER_MILLISECONDS = 500  # for the last replies when the server exits

log = logging.getLogger("ps-server")


class ZmqServer:
    """Serves one ParameterServer, or the Standby of another. The thread that calls `serve` owns it."""

    def __init__(
        self,
        server: ParameterServer | Standby,
        writer: CheckpointWriter,
        *,
        host: str,
        port: int,
        receive_bytes: int = RECEIVE_BYTES,
        access_control: AccessControl | None = None,
        primary_keys: ClientKeys | None = None,
    ) -> None:
        """
        Binds at once; port 0 takes a free one. Without a door it talks to anybody.

        `primary_keys` are what a standby needs to talk to a locked primary.

        Raises SettingsError when the address cannot be had.
        """
        self._server = server
        self._writer = writer
        self._context = zmq.Context()
        self._socket = _router(self._context)
        self._access_control = access_control
        if access_control is not None:
            access_control.install(self._context, self._socket)
        self._connections = Connections(
            self._context,
            self._socket,
            vector_bytes=self._most_vector_bytes,
            run_bytes=lambda: self._most_vector_bytes() if self.served is not None and self.served.version else 0,
            is_known=self._is_known,
            budget_bytes=receive_bytes,
            is_locked=access_control is not None,
        )
        self._memory = MappedSegments()
        self._lines = NotedLines()
        self._replies = Replies(self._socket, place=self._place, renewed=self._renewed)
        self._exit = False
        self._on_report: Callable[[Reported], None] | None = None
        try:
            self.host, self.port = bind(self._socket, host, port)
        except (zmq.ZMQError, OSError, UnicodeError) as error:
            self._shut(linger=0)
            raise SettingsError(f"--host {host} --port {port}: cannot listen there: {error}") from error
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._primary: PrimaryLink | None = None
        if isinstance(server, Standby):
            self._primary = PrimaryLink(self._context, server.primary, primary_keys)
            self._poller.register(self._primary.socket, zmq.POLLIN)

    @property
    def served(self) -> ParameterServer | None:
        """The server of the run; None at a standby that has not taken over."""
        return self._server.server if isinstance(self._server, Standby) else self._server

    def serve(
        self,
        *,
        until: Callable[[], bool],
        on_tick: Callable[[Status], None],
        on_report: Callable[[Reported], None],
    ) -> None:
        """
        Serve until the run has ended or `until` says so.

        `on_tick` gets the status several times a second, `on_report` each report of a worker.
        """
        self._on_report = on_report
        next_tick = time.monotonic()
        while not self._exit and not until():
            due = min(next_tick, self._replies.next_due() or next_tick, self._connections.next_look)
            wait = max(0.0, due - time.monotonic())
            if self._poller.poll(int(wait * 1000) + 1):
                self._receive_from_primary()
                for frames in self._waiting():
                    self._handle(frames)
            else:
                self._connections.drained()
            self._replies.send_waiting(now=time.monotonic())
            self._connections.look(now=time.monotonic())
            self._collect_checkpoints()
            now = time.monotonic()
            if now >= next_tick:
                if now - next_tick > AWAY_SECONDS:
                    self._server.was_away(now - next_tick, now=now)
                next_tick = now + TICK_SECONDS
                self._do(self._server.tick(now=now))
                alive = self.served.membership.alive() if self.served is not None else []
                self._memory.keep_only({member.peer for member in alive})
                on_tick(self._server.status(now=now))

    def close(self) -> bool:
        """
        Write the last checkpoint, if anything changed since the newest, and let go of everything.

        Whether the disk has taken what was to be written. One that takes nothing is not waited for without end.
        """
        end = time.monotonic() + max(SAVE_SECONDS, SLOWER * self._writer.longest_seconds)
        self._drain_writer(end)
        for _ in range(2):  # the second if the first finds the weights lost, and the run goes back to a checkpoint
            if self.served is not None and self.served.has_unsaved:
                self._do(self.served.save(now=time.monotonic()))
                self._drain_writer(end)
        is_written = self._writer.close(within_seconds=max(0.0, end - time.monotonic()))
        if not is_written:
            log.warning("the disk does not take the last checkpoint; it is not waited for any longer")
        self._shut(linger=LINGER_MILLISECONDS)
        return is_written

    def _shut(self, *, linger: int) -> None:
        if self._access_control is not None:
            self._access_control.close()
        self._connections.close()
        self._memory.keep_only(())
        self._context.destroy(linger=linger)

    def _waiting(self) -> Iterator[list[zmq.Frame]]:
        for _ in range(BURST):
            try:
                frames = receive_frames(self._socket)
            except zmq.Again:
                self._connections.drained()
                return
            self._connections.delivered(frames, now=time.monotonic())
            yield frames

    def _receive_from_primary(self) -> None:
        """What has arrived at a standby from whom it follows, or followed."""
        if self._primary is not None and isinstance(self._server, Standby):
            for message, vector in self._primary.waiting():
                self._do(self._server.receive_from_primary(message, vector, now=time.monotonic()))

    def _handle(self, frames: list[zmq.Frame]) -> None:
        peer = frames[0].bytes
        try:
            header, places = take_places([frame.buffer for frame in frames[1:]])
            message, received = read_to_server(header)
            most = self._most_vector_bytes()
            vector = self._memory.take(peer, message, received, places, most_bytes=most, now=time.monotonic())
        except WireError as error:
            self._do(self._server.unreadable(peer, str(error), now=time.monotonic()))
            return
        if vector is None:
            reason = "the memory that you have lent is not here any more; say HELLO again"
            self._send(Send(peer, Refused(request=message.request, code="unknown_worker", reason=reason)))
            return
        if isinstance(message, Hello):
            self._memory.offered(peer, message)
        self._do(self._server.receive(peer, message, vector, now=time.monotonic(), sender=self._sender(frames[0])))

    def _sender(self, frame: zmq.Frame) -> Sender:
        """Who has sent a message, by what ZeroMQ knows of its connection."""
        if self._access_control is None:
            return ANYBODY
        key = str(frame.get("User-Id"))
        return Sender(key=key, is_admin=self._access_control.is_admin(key))

    def _most_vector_bytes(self) -> int:
        return self.served.pushes.most_vector_bytes if self.served is not None else 0

    def _is_known(self, peer: PeerId | None) -> bool:
        served = self.served
        return served is not None and peer is not None and served.membership.known_at(peer) is not None

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect)
                case SendToPrimary():
                    assert self._primary is not None, "a standby has a primary"
                    self._primary.send(effect.message)
                case SaveCheckpoint():
                    self._writer.write(effect)
                case Recall():
                    self._do(self._recall())
                case Reported():
                    assert self._on_report is not None, "reports come while it serves"
                    self._on_report(effect)
                case Note():
                    self._lines.add(effect, now=time.monotonic())
                case Exit():
                    self._exit = True

    def _send(self, send: Send) -> None:
        if isinstance(send.message, Welcome):
            send = replace(
                send,
                message=msgspec.structs.replace(send.message, memory=self._memory.proof(send.to, now=time.monotonic())),
            )
        self._replies.send(send, now=time.monotonic())

    def _place(self, send: Send) -> Places | None:
        return self._memory.answer(send.to, send.message.request, send.snapshot)

    def _renewed(self, send: Send, target: bool) -> Send:
        assert self.served is not None, "who sends weights serves a run"
        return self.served.renewed(send, target=target)

    def _recall(self) -> list[Effect]:
        """Nobody is served meanwhile: there is nothing to serve."""
        assert self.served is not None, "a standby goes back to nothing"
        try:
            path, vectors, record = self._writer.newest()
        except CheckpointError as error:
            return self.served.recall_failed(str(error), now=time.monotonic())
        return self.served.recalled(path.name, vectors, record, now=time.monotonic())

    def _collect_checkpoints(self) -> None:
        while not self._writer.results.empty():
            self._collect(self._writer.results.get())

    def _drain_writer(self, end: float) -> None:
        """Wait for the checkpoint that is being written, if there is one, but no longer than until `end`."""
        if self.served is not None and self.served.checkpoints.is_writing:
            with contextlib.suppress(queue.Empty):
                self._collect(self._writer.results.get(timeout=max(0.0, end - time.monotonic())))

    def _collect(self, written: Written) -> None:
        assert self.served is not None, "a standby writes nothing"
        if written.error:
            self._do(self.served.checkpoint_failed(written.error))
        else:
            log.debug("saved %s", written.path)
            self._do(self.served.checkpoint_saved(str(written.path)))


def _router(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A ROUTER with every option set on purpose. All of them must be set before bind."""
    socket = context.socket(zmq.ROUTER)
    # Without it, replies to a connection that is gone or full would be dropped without a word.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # Counted in whole messages for each peer; the defaults of 1000 would be gigabytes of weights.
    socket.setsockopt(zmq.RCVHWM, RECEIVE_HIGH_WATER)
    socket.setsockopt(zmq.SNDHWM, SEND_HIGH_WATER)
    # A frame over this size disconnects its sender before it takes memory.
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    # Many workers may start at the same moment.
    socket.setsockopt(zmq.BACKLOG, 1024)
    # A host that vanished without FIN: let the kernel find out, in about two minutes. (Leases are much faster; this
    # only frees the connection. ZeroMQ's own heartbeats would cut a large frame on a slow link.)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 60)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 10)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 6)
    return socket
