"""
The shell of the worker's machine: it owns the DEALER socket, the machine and the segment slots.

Threads: the one that holds the lock uses all three. The trainer's thread alone calls the methods of ZmqClient and waits
for a ReplyFuture. It then drives the socket itself, because handing over to another thread costs as much as a message
to the server. While the trainer computes, a background thread polls often enough for heartbeats and unsolicited
messages. Any thread may read `error`, `is_watched`, `is_drained`, `adjusted_run`, `has_pushed` and
`link_timeout.is_held` of the machine.

Every call ends: with its reply, or with the error that ended the conversation (the run is over, the server has refused,
or it was unreachable for longer than the patience). The background thread looks names up, without the lock: a name
server may take half a minute, and neither signals nor calls wait for it.

In a forked process, where libzmq answers nothing, calls raise and `close` does nothing.
"""

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import numpy as np
import zmq

from ps_client.machine.effects import Effect, Fail, Joined, LogLine, Phase, Reconnect, Resolve, Transmit
from ps_client.machine.parameter_client import Call, ParameterClient
from ps_client.shell.segment_slots import SegmentSlots
from ps_client.shell.stall_watch import StallWatch
from ps_common.errors import PsRlError, ServerUnreachable, SettingsError, WireError
from ps_common.program.output import LogOfPeer
from ps_common.program.running_clock import RunningClock
from ps_common.protocol.messages import Frame, ToWorker, Welcome
from ps_common.protocol.names import ip_version, split_address
from ps_common.protocol.wire import Buffer
from ps_common.run_folder.endpoint_file import ServerAddress
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.zmq_sockets import connect, dealer, look_up, receive_frames, send_frames

GOODBYE_SECONDS = 1.0
POLL_SECONDS = 0.05  # between two polls in the background

Reply = tuple[ToWorker, Sequence[Buffer]]  # a message and the buffers of its vector

T = TypeVar("T")

log = logging.getLogger("rl-worker")


class ReplyFuture(Future[T]):
    """A future that is waited for actively: the waiting thread drives the connection."""

    def __init__(self, drive: Callable[[Future[Any], float | None], None]) -> None:
        """`drive(future, timeout)` returns when the future is done or time is up."""
        super().__init__()
        self._drive = drive

    def result(self, timeout: float | None = None) -> T:
        self._drive(self, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._drive(self, timeout)
        return super().exception(0)


class ZmqClient:
    """A worker's connection to its server, which begins to join at once. `server` is as in endpoint_file.py."""

    def __init__(
        self,
        server: str,
        machine: ParameterClient,
        *,
        keys: ClientKeys | None = None,
        postponing_signals: Callable[[], AbstractContextManager[None]] = nullcontext,
        watch: StallWatch | None = None,
    ) -> None:
        """
        With `keys` the connection is encrypted, and only the server that they name is accepted. The caller's thread
        uses the connection inside `postponing_signals`: a signal's exception would leave half a message. `watch` is
        that of the trainer, which runs in the main thread; heartbeats report a stall to the server.
        """
        self.welcome: ReplyFuture[Welcome] = ReplyFuture(self._drive_until)
        self._server = ServerAddress(server)
        self._keys, self._postponing_signals = keys, postponing_signals
        self.machine = machine
        self._clock = RunningClock()
        self._watch = watch or StallWatch(math.inf, now=self._clock.now())
        self._clock.on_pause = machine.was_away
        self._pending: dict[int, ReplyFuture[Reply]] = {}  # by ticket
        self._farewell: ReplyFuture[Reply] | None = None  # to GOODBYE
        self._ended: Exception | None = None  # why the conversation is over
        self._slots, self._log_of_server = SegmentSlots(), LogOfPeer(log)
        self._lock, self._pid = threading.Lock(), os.getpid()
        self._context = zmq.Context()
        self._name: str  # HOST:PORT that the socket is to be connected to once HOST was looked up
        self._without_address: dict[str, str] = {}  # names that have none, in words, by HOST:PORT
        self._socket = self._connected()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll_in_background, name="zmq-client", daemon=True)
        self._thread.start()

    def call(self, method: Callable[..., Call]) -> ReplyFuture[Reply]:
        """
        Call a method of the machine with `now`. The future is that of the reply.

        Its result raises PsRlError when the server has refused or the conversation is over. Raises SettingsError in a
        forked process.
        """
        if os.getpid() != self._pid:
            raise SettingsError(
                f"this connection belongs to process {self._pid}, from which this one was forked; make one here"
            )
        reply: ReplyFuture[Reply] = ReplyFuture(self._drive_until)
        with self._postponing_signals(), self._lock:
            if self._ended is not None:
                reply.set_exception(self._ended)
            else:
                self._guarded(self._call, method, reply)
        return reply

    def show(self, frame: Frame) -> None:
        """Send a frame of the game, if it is still watched; it has no reply, and may be lost."""
        with self._postponing_signals(), self._lock:
            if self.machine.phase is Phase.JOINED and self.machine.is_watched:
                self._guarded(self._transmit, Transmit(frame))

    def shared_array(self, size: int) -> np.ndarray | None:
        """
        An array [size] of float32 in memory shared with the server, so that a push of it is not copied; None where no
        memory is shared. Its content is undefined, and must not change once it was pushed.
        """
        with self._postponing_signals(), self._lock:
            return self._slots.array(size)

    def say_goodbye(self, reason: str = "", *, failed: bool = False) -> None:
        """Send GOODBYE; `close` waits for the reply."""
        self._farewell = self.call(lambda now: self.machine.leave(reason, failed=failed, now=now))

    def close(self, reason: str = "", *, seconds: float = GOODBYE_SECONDS) -> None:
        """Send GOODBYE unless it was sent, wait for the reply, `seconds` at most, and end the thread."""
        if os.getpid() != self._pid:
            return
        if self._farewell is None:
            self.say_goodbye(reason)
        assert self._farewell is not None, "it was sent just now"
        try:
            self._farewell.exception(timeout=seconds)
        except TimeoutError:
            log.debug("no reply to GOODBYE")
        self._closing.set()
        self._thread.join(GOODBYE_SECONDS)
        with self._postponing_signals(), self._lock:
            self._end(PsRlError("the connection to the server was closed"))

    # -- the threads that drive the connection ------------------------------------------------------------------------

    def _poll_in_background(self) -> None:
        """The thread. It looks names up, and does nothing else while another thread drives the connection."""
        while True:
            self._connect_by_name()
            if self._closing.wait(POLL_SECONDS):
                return
            self._watch.check(has_pushed=self.machine.has_pushed, now=time.monotonic())
            if self._lock.acquire(blocking=False):
                try:
                    self._guarded(self._poll, 0.0)
                finally:
                    self._lock.release()

    def _connect_by_name(self) -> None:
        """Look up the name that the socket waits for, and connect it, unless it waits for another one by then."""
        if not (address := self._name):
            return
        over_ipv6, why = look_up(address)
        with self._lock:
            self._without_address[address] = why
            if self._name == address:
                self._name = ""
                # Where the name has no address now, ZeroMQ keeps trying.
                self._guarded(partial(connect, self._socket, address, over_ipv6=over_ipv6 or False))

    def _drive_until(self, reply: Future[Any], timeout: float | None) -> None:
        """Poll until this reply is there, or time is up."""
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        while not reply.done() and (left := end - time.monotonic()) > 0:
            self._watch.progressed()  # waiting is not a stall
            with self._postponing_signals(), self._lock:
                if not reply.done():
                    self._guarded(self._poll, left)

    # -- with the lock ------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """An error here is a bug. It ends the conversation, and every pending call fails with it."""
        try:
            if self._ended is None:
                work(*arguments)
        except Exception as error:
            log.exception("the connection to %s failed", self._server)
            self._end(error)

    def _end(self, error: Exception) -> None:
        """End the conversation. Pending and later calls fail with this error."""
        if self._ended is None:
            self._ended = error
            self._context.destroy(linger=0)
            self._slots.release()
            self._fail(0, error)

    def _poll(self, seconds: float) -> None:
        """Wait for `seconds` at most, then receive what has arrived and let the machine do what is due."""
        wait = min(seconds, POLL_SECONDS, self.machine.next_tick() - self._clock.now())
        milliseconds = int(wait * 1000) + 1 if wait > 0 else 0
        while zmq.zmq_poll([(self._socket, zmq.POLLIN)], milliseconds):  # asking costs a third of zmq.Again
            self._receive()
            milliseconds = 0
        if self.machine.phase is Phase.JOINING and self._server.has_moved(now=self._clock.now()):
            self._do(self.machine.reconnect(now=self._clock.now()))
        self._do(self.machine.tick(now=self._clock.now(), stalled=self._watch.stalled_seconds > 0))

    def _call(self, method: Callable[..., Call], reply: ReplyFuture[Reply]) -> None:
        try:
            ticket, effects = method(now=self._clock.now())
        except Exception as error:
            reply.set_exception(error)
            raise
        self._pending[ticket] = reply
        self._do(effects)

    def _receive(self) -> None:
        frames = receive_frames(self._socket)
        try:
            read = self._slots.read([frame.buffer for frame in frames])
        except WireError as error:
            self._log_of_server.warning("the server at %s sent something unreadable: %s", self._server, error)
        else:
            if read is not None:
                self._do(self.machine.receive(*read, now=self._clock.now()))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit():
                    self._transmit(effect)
                case Resolve():
                    self._pending.pop(effect.ticket).set_result((effect.reply, effect.vector))
                case Joined():
                    self.welcome.set_result(effect.welcome)
                case Fail():
                    self._fail(effect.ticket, effect.error)
                case Reconnect():
                    self._socket.close(linger=0)
                    self._slots.release()
                    self._server.advance()
                    self._socket = self._connected()
                case LogLine():
                    self._log_of_server.warning("%s: %s", self._server, effect.text)

    def _transmit(self, transmit: Transmit) -> None:
        try:
            send_frames(self._socket, self._slots.to_frames(transmit.message, transmit.vector))
        except zmq.Again:
            # Not connected, or the send queue is full. The machine finds out and sends it again.
            log.debug("%s could not be sent", type(transmit.message).__name__)

    def _fail(self, ticket: int, error: Exception) -> None:
        if isinstance(error, ServerUnreachable):
            sentences = [str(error), *filter(None, map(self._without_address.get, self._server.known))]
            error = ServerUnreachable("; ".join(sentences))
        failed = [self._pending.pop(ticket)] if ticket else list(self._pending.values())
        if not ticket:
            self._pending.clear()
            if not self.welcome.done():
                self.welcome.set_exception(error)
        for future in failed:
            future.set_exception(error)

    def _connected(self) -> zmq.Socket[bytes]:
        socket = dealer(self._context, self._keys)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        address = self._server.current
        version = ip_version(split_address(address)[0]) if address else None
        self._name = "" if version else address
        if version:
            connect(socket, address, over_ipv6=version == 6)
        return socket
