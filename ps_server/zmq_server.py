"""
The shell of the server: one ROUTER socket, one thread. It receives, decodes, asks the machine, and does what it says.

Nothing is decided here. A peer that does not read its replies loses them (it will ask again) and costs at most
SEND_HIGH_WATER messages of memory; nobody can make this loop wait.
"""

import logging
import time
from collections.abc import Callable, Iterator
from weakref import WeakKeyDictionary

import zmq

from common.errors import SettingsError, WireError
from common.status import Status
from common.wire import MAX_FRAME_BYTES, Buffer, chunks, read_to_server, to_frames
from ps_server.checkpointing import CheckpointWriter, Written
from ps_server.door import Door
from ps_server.effects import Effect, Exit, Note, Reported, SaveCheckpoint, Send
from ps_server.parameter_server import ParameterServer
from ps_server.weight_store import Snapshot

TICK_SECONDS = 0.25
AWAY_SECONDS = 0.5  # a tick that is later than this: workers spoke, perhaps, and were not heard
BURST = 64  # messages between two looks at the clock
RECEIVE_HIGH_WATER = 16  # whole messages of one peer, received and not yet looked at
SEND_HIGH_WATER = 8  # whole messages for one peer, not yet taken by its connection
LINGER_MILLISECONDS = 500  # for the last replies when the server exits

log = logging.getLogger("ps-server")


class ZmqServer:
    """Serves one ParameterServer. The thread that calls `serve` owns it."""

    def __init__(
        self, server: ParameterServer, writer: CheckpointWriter, *, host: str, port: int, door: Door | None = None
    ) -> None:
        """
        Binds at once; port 0 takes a free one. Without a door it talks to anybody.

        Raises SettingsError when the address cannot be had.
        """
        self._server = server
        self._writer = writer
        self._context = zmq.Context()
        self._socket = _router(self._context)
        self._door = door
        if door is not None:
            door.hang(self._context, self._socket)
        self._frames: WeakKeyDictionary[Snapshot, list[zmq.Frame]] = WeakKeyDictionary()
        self._exit = False
        self._on_report: Callable[[Reported], None] | None = None
        try:
            self._socket.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            self._shut(linger=0)
            raise SettingsError(f"--host {host} --port {port}: cannot listen there: {error}") from error
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

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
            wait = max(0.0, next_tick - time.monotonic())
            if self._socket.poll(int(wait * 1000) + 1):
                for frames in self._waiting():
                    self._handle(frames)
            self._collect_checkpoints()
            now = time.monotonic()
            if now >= next_tick:
                if now - next_tick > AWAY_SECONDS:
                    self._server.was_away(now - next_tick, now=now)
                next_tick = now + TICK_SECONDS
                self._do(self._server.tick(now=now))
                on_tick(self._server.status(now=now))

    def close(self) -> None:
        """Write the last checkpoint, if anything changed since the newest, and let go of everything."""
        self._drain_writer()
        if self._server.version != self._server.checkpoints.saved_version:
            self._do(self._server.save(now=time.monotonic()))
            self._drain_writer()
        self._writer.close()
        self._shut(linger=LINGER_MILLISECONDS)

    def _shut(self, *, linger: int) -> None:
        if self._door is not None:
            self._door.close()
        self._context.destroy(linger=linger)

    def _waiting(self) -> Iterator[list[zmq.Frame]]:
        for _ in range(BURST):
            try:
                yield self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return

    def _handle(self, frames: list[zmq.Frame]) -> None:
        peer = frames[0].bytes
        try:
            message, vector = read_to_server([frame.buffer for frame in frames[1:]])
        except WireError as error:
            self._do(self._server.unreadable(peer, str(error), now=time.monotonic()))
        else:
            is_admin = self._door is None or self._door.is_admin(str(frames[0].get("User-Id")))
            self._do(self._server.receive(peer, message, vector, now=time.monotonic(), is_admin=is_admin))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._send(effect)
                case SaveCheckpoint():
                    self._writer.write(effect)
                case Reported():
                    assert self._on_report is not None, "reports come while it serves"
                    self._on_report(effect)
                case Note():
                    log.log(logging.WARNING if effect.warning else logging.INFO, effect.text)
                case Exit():
                    self._exit = True

    def _send(self, send: Send) -> None:
        frames: list[Buffer | zmq.Frame] = [send.to, *to_frames(send.message)]
        if send.snapshot is not None:
            frames += self._frames_of(send.snapshot)
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            log.debug("a reply was dropped: its reader is slow")
        except zmq.ZMQError as error:
            # ROUTER_MANDATORY tells that the connection is gone; the worker will be back on another one.
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def _frames_of(self, snapshot: Snapshot) -> list[zmq.Frame]:
        """The snapshot as frames, made once; sending a frame again costs a reference, not a copy."""
        if snapshot not in self._frames:
            self._frames[snapshot] = [zmq.Frame(chunk, copy=False) for chunk in chunks(snapshot.buffer)]
        return self._frames[snapshot]

    def _collect_checkpoints(self) -> None:
        while not self._writer.results.empty():
            self._collect(self._writer.results.get())

    def _drain_writer(self) -> None:
        """Wait for the checkpoint that is being written, if there is one."""
        if self._server.checkpoints.is_writing:
            self._collect(self._writer.results.get())

    def _collect(self, written: Written) -> None:
        if written.error:
            self._do(self._server.checkpoint_failed(written.error))
        else:
            log.debug("saved %s", written.path)
            self._do(self._server.checkpoint_saved(str(written.path)))


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
