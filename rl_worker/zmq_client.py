"""
The shell of the worker's machine: one thread that owns the DEALER socket and the machine, and talks to the server while
the trainer computes.

Other threads hand it calls and get futures; nothing else is shared. Every call ends: with its reply, or with the error
that ended the conversation (the run is over, the server refused, or it was silent for longer than the patience).
"""

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import zmq

from common.curve import ClientKeys
from common.errors import PsRlError, WireError
from common.messages import ToWorker, Welcome
from common.wire import MAX_FRAME_BYTES, Buffer, read_to_worker, to_frames
from rl_worker.effects import Effect, Fail, Joined, Note, Reconnect, Resolve, Transmit
from rl_worker.parameter_client import Call, ParameterClient

HIGH_WATER = 16  # whole messages, in either direction
GOODBYE_SECONDS = 1.0

Reply = tuple[ToWorker, Sequence[Buffer]]  # a message and the buffers of its vector

log = logging.getLogger("rl-worker")


class ZmqClient:
    """A worker's connection to HOST:PORT, the first of several with commas between. Begins to join at once."""

    def __init__(self, server: str, client: ParameterClient, *, keys: ClientKeys | None = None) -> None:
        """With keys it talks to nobody but the server that they name."""
        self.welcome: Future[Welcome] = Future()
        self._servers = server.split(",")
        self._keys = keys
        self._client = client
        self._calls: queue.SimpleQueue[tuple[Callable[..., Call], Future[Reply]]] = queue.SimpleQueue()
        self._futures: dict[int, Future[Reply]] = {}  # by ticket
        self._closing = False
        self._ended: Exception | None = None  # why the thread has ended
        self._ear, self._bell = socket.socketpair()
        self._context = zmq.Context()
        self._connect()
        self._thread = threading.Thread(target=self._run, name="zmq-client", daemon=True)
        self._thread.start()

    def call(self, method: Callable[..., Call]) -> Future[Reply]:
        """
        Have a method of the machine called, with `now`, in the thread that owns it.

        The future raises PsRlError when the server said no or the conversation is over.
        """
        future: Future[Reply] = Future()
        self._calls.put((method, future))
        if self._ended is None:
            self._bell.send(b"!")
        else:
            self._refuse_calls(self._ended)
        return future

    def close(self, reason: str = "") -> None:
        """Say GOODBYE, wait a moment for the answer, and end the thread."""
        farewell = self.call(lambda now: self._client.leave(reason, now=now))
        try:
            farewell.exception(timeout=GOODBYE_SECONDS)
        except TimeoutError:
            log.debug("the server did not answer GOODBYE")
        self._closing = True
        self._bell.send(b"!")
        self._thread.join()
        self._ear.close()
        self._bell.close()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        ended: Exception = PsRlError("the connection to the server was closed")
        try:
            while not self._closing:
                self._wait()
                self._take_calls()
                self._receive()
                self._do(self._client.tick(now=time.monotonic()))
        except Exception as error:  # our own mistake: whoever waits must hear of it
            log.exception("the connection's thread failed")
            ended = error
        finally:
            self._context.destroy(linger=0)
            self._ended = ended  # from here on `call` refuses
            self._fail(0, ended)
            self._refuse_calls(ended)

    def _wait(self) -> None:
        """Until something arrives, somebody calls, or the machine has something to do."""
        wait = max(0.0, self._client.next_tick() - time.monotonic())
        if self._ear.fileno() in dict(self._poller.poll(int(wait * 1000) + 1)):
            self._ear.recv(4096)

    def _take_calls(self) -> None:
        while not self._calls.empty():
            method, future = self._calls.get()
            try:
                ticket, effects = method(now=time.monotonic())
            except Exception as error:
                future.set_exception(error)
                raise
            self._futures[ticket] = future
            self._do(effects)

    def _refuse_calls(self, error: Exception) -> None:
        """Nobody will take them any more. Any thread may come here."""
        while True:
            try:
                _, future = self._calls.get_nowait()
            except queue.Empty:
                return
            future.set_exception(error)

    def _receive(self) -> None:
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                message, vector = read_to_worker([frame.buffer for frame in frames])
            except WireError as error:
                log.warning("the server at %s sent something unreadable: %s", self._servers[0], error)
            else:
                self._do(self._client.receive(message, vector, now=time.monotonic()))

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit():
                    self._transmit(effect)
                case Resolve():
                    self._futures.pop(effect.ticket).set_result((effect.reply, effect.vector))
                case Joined():
                    self.welcome.set_result(effect.welcome)
                case Fail():
                    self._fail(effect.ticket, effect.error)
                case Reconnect():
                    self._socket.close(linger=0)
                    self._servers.append(self._servers.pop(0))
                    self._connect()
                case Note():
                    log.warning("%s: %s", self._servers[0], effect.text)

    def _transmit(self, transmit: Transmit) -> None:
        try:
            self._socket.send_multipart(to_frames(transmit.message, transmit.vector), zmq.NOBLOCK, copy=False)
        except zmq.Again:
            # Not connected, or too much under way. The machine finds out and sends it again.
            log.debug("%s could not be sent", type(transmit.message).__name__)

    def _fail(self, ticket: int, error: Exception) -> None:
        failed = [self._futures.pop(ticket)] if ticket else list(self._futures.values())
        if not ticket:
            self._futures.clear()
            if not self.welcome.done():
                self.welcome.set_exception(error)
        for future in failed:
            future.set_exception(error)

    def _connect(self) -> None:
        self._socket = self._dealer()
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._ear, zmq.POLLIN)

    def _dealer(self) -> zmq.Socket[bytes]:
        """
        A DEALER with every option set on purpose, all of them before connect.

        It has no routing id of its own: the server gives each connection a new one, and HELLO tells who we are.
        """
        socket = self._context.socket(zmq.DEALER)
        # Nothing is queued for a connection that does not stand: it would arrive before HELLO, or twice.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
        socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        # From 0.1 s, doubling to 2 s: a hundred workers must not knock ten times a second each.
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, 5000)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 30)
        if self._keys is not None:
            self._keys.lock(socket)
        socket.connect(f"tcp://{self._servers[0]}")
        return socket
