"""
The shell of the worker's machine: it owns the DEALER socket, the machine and the memory shared with the server.

Whoever holds the lock owns all three. Who waits for an answer looks after the connection himself meanwhile: to hand
that to another thread and back takes as long as a message to the server. A thread of its own looks often enough for
heartbeats, and for what comes unasked, while the trainer computes.

Every call ends: with its reply, or with the error that ended the conversation (the run is over, the server refused, or
it was silent for longer than the patience).
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import zmq

from common.errors import PsRlError, ServerUnreachable, WireError
from common.protocol.messages import ToWorker, Welcome
from common.protocol.wire import Buffer
from common.sockets.curve import ClientKeys
from common.sockets.zmq_sockets import connect, dealer, receive_frames, why_no_address
from rl_worker.machine.effects import Effect, Fail, Joined, Note, Reconnect, Resolve, Transmit
from rl_worker.machine.parameter_client import Call, ParameterClient
from rl_worker.machine.stall_watch import StallWatch, Standstill
from rl_worker.shell.reply_future import ReplyFuture
from rl_worker.shell.segment_slots import SegmentSlots
from rl_worker.shell.standstill_report import main_thread_stack, standstill_in_words

GOODBYE_SECONDS = 1.0
LOOK_SECONDS = 0.05  # between two looks while nobody waits

Reply = tuple[ToWorker, Sequence[Buffer]]  # a message and the buffers of its vector

log = logging.getLogger("rl-worker")


class ZmqClient:
    """
    A worker's connection to HOST:PORT, the first of several with commas between. Begins to join at once.

    Calls come from one thread.
    """

    def __init__(
        self,
        server: str,
        client: ParameterClient,
        *,
        keys: ClientKeys | None = None,
        undisturbed: Callable[[], AbstractContextManager[None]] = nullcontext,
        watch: StallWatch | None = None,
    ) -> None:
        """
        With keys it talks to nobody but the server that they name. What its caller's thread does with the connection
        it does `undisturbed`: a signal's exception would leave half a message. `watch` is that of the trainer, which
        runs in the main thread: the server is told when it stands still.
        """
        self.welcome: ReplyFuture[Welcome] = ReplyFuture(self._work_for)
        self._servers = server.split(",")
        self._keys = keys
        self._undisturbed = undisturbed
        self._client = client
        self._watch = watch
        self._standstill: Standstill | None = None
        self._answers: dict[int, ReplyFuture[Reply]] = {}  # by ticket
        self._ended: Exception | None = None  # why the conversation is over
        self._slots = SegmentSlots()
        self._lock = threading.Lock()
        self._context = zmq.Context()
        self._socket = self._dealer()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look_now_and_then, name="zmq-client", daemon=True)
        self._thread.start()

    def call(self, method: Callable[..., Call]) -> ReplyFuture[Reply]:
        """
        Have a method of the machine called, with `now`.

        The answer raises PsRlError when the server said no or the conversation is over.
        """
        answer: ReplyFuture[Reply] = ReplyFuture(self._work_for)
        with self._undisturbed(), self._lock:
            if self._ended is not None:
                answer.set_exception(self._ended)
            else:
                self._guarded(self._call, method, answer)
        return answer

    def memory(self, size: int) -> np.ndarray | None:
        """
        An array [size] of float32 that the server of this host can read, so that a push of it is not copied; None where
        there is none. Its content is undefined, and must not change any more once it was pushed.
        """
        with self._undisturbed(), self._lock:
            return self._slots.memory(size)

    def close(self, reason: str = "") -> None:
        """Say GOODBYE, wait a moment for the answer, and end the thread."""
        farewell = self.call(lambda now: self._client.leave(reason, now=now))
        try:
            farewell.exception(timeout=GOODBYE_SECONDS)
        except TimeoutError:
            log.debug("the server did not answer GOODBYE")
        self._closing.set()
        self._thread.join(GOODBYE_SECONDS)
        with self._undisturbed(), self._lock:
            self._end(PsRlError("the connection to the server was closed"))

    # -- who looks after the connection -------------------------------------------------------------------------------

    def _look_now_and_then(self) -> None:
        """The thread, for as long as nobody waits for an answer."""
        while not self._closing.wait(LOOK_SECONDS):
            self._look_at_the_trainer()
            if self._lock.acquire(blocking=False):
                try:
                    self._guarded(self._turn, 0.0)
                finally:
                    self._lock.release()

    def _work_for(self, answer: Future[Any], timeout: float | None) -> None:
        """Until this answer is there, or the time is over."""
        end = time.monotonic() + (math.inf if timeout is None else timeout)
        while not answer.done() and (left := end - time.monotonic()) > 0:
            if self._watch is not None:
                self._watch.moved(now=time.monotonic())  # to wait for the server is no standstill
            with self._undisturbed(), self._lock:
                if not answer.done():
                    self._guarded(self._turn, left)

    def _look_at_the_trainer(self) -> None:
        """The log says where it stands when it begins to stand still; heartbeats tell the server."""
        if self._watch is None:
            return
        before = self._standstill
        self._standstill = self._watch.look(has_pushed=self._client.has_pushed, now=time.monotonic())
        if before is None and self._standstill is not None:
            log.warning("where the trainer stands:\n%s", "".join(main_thread_stack().format()))
            log.warning("%s", standstill_in_words(self._standstill))
        elif before is not None and self._standstill is None:
            log.info("the trainer goes on, after %.0f s without a step", before.seconds)

    # -- with the lock ------------------------------------------------------------------------------------------------

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """An error here is our own mistake: it ends the conversation, and whoever waits must hear of it."""
        try:
            if self._ended is None:
                work(*arguments)
        except Exception as error:
            log.exception("the connection to %s failed", self._servers[0])
            self._end(error)

    def _end(self, error: Exception) -> None:
        """The conversation is over: now, and for every call to come."""
        if self._ended is None:
            self._ended = error
            self._context.destroy(linger=0)
            self._slots.let_go()
            self._fail(0, error)

    def _turn(self, seconds: float) -> None:
        """Wait for so long, unless something arrives or the machine has something to do; then do that."""
        wait = min(seconds, LOOK_SECONDS, self._client.next_tick() - time.monotonic())
        if wait > 0:
            zmq.zmq_poll([(self._socket, zmq.POLLIN)], int(wait * 1000) + 1)
        self._receive()
        self._do(self._client.tick(now=time.monotonic(), stalled=self._standstill is not None))

    def _call(self, method: Callable[..., Call], answer: ReplyFuture[Reply]) -> None:
        try:
            ticket, effects = method(now=time.monotonic())
        except Exception as error:
            answer.set_exception(error)
            raise
        self._answers[ticket] = answer
        self._do(effects)

    def _receive(self) -> None:
        while True:
            try:
                frames = receive_frames(self._socket)
            except zmq.Again:
                return
            try:
                read = self._slots.read([frame.buffer for frame in frames])
            except WireError as error:
                log.warning("the server at %s sent something unreadable: %s", self._servers[0], error)
            else:
                if read is not None:
                    self._do(self._client.receive(*read, now=time.monotonic()))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit():
                    self._transmit(effect)
                case Resolve():
                    self._answers.pop(effect.ticket).set_result((effect.reply, effect.vector))
                case Joined():
                    self.welcome.set_result(effect.welcome)
                case Fail():
                    self._fail(effect.ticket, effect.error)
                case Reconnect():
                    self._socket.close(linger=0)
                    self._slots.let_go()
                    self._servers.append(self._servers.pop(0))
                    self._socket = self._dealer()
                case Note():
                    log.warning("%s: %s", self._servers[0], effect.text)

    def _transmit(self, transmit: Transmit) -> None:
        try:
            self._socket.send_multipart(
                self._slots.to_frames(transmit.message, transmit.vector), zmq.NOBLOCK, copy=False
            )
        except zmq.Again:
            # Not connected, or too much under way. The machine finds out and sends it again.
            log.debug("%s could not be sent", type(transmit.message).__name__)

    def _fail(self, ticket: int, error: Exception) -> None:
        if isinstance(error, ServerUnreachable):
            error = ServerUnreachable("; ".join([str(error), *filter(None, map(why_no_address, self._servers))]))
        failed = [self._answers.pop(ticket)] if ticket else list(self._answers.values())
        if not ticket:
            self._answers.clear()
            if not self.welcome.done():
                self.welcome.set_exception(error)
        for answer in failed:
            answer.set_exception(error)

    def _dealer(self) -> zmq.Socket[bytes]:
        socket = dealer(self._context, self._keys)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        connect(socket, self._servers[0])
        return socket
