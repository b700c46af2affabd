"""A small server on loopback: a ROUTER in a thread, whose replies a test overrides. And `wait_until`."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import zmq

from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer, ToWorker
from ps_common.protocol.wire import Buffer, read_to_server, to_frames
from tests.ps_client.client_transcripts import alive, welcome

DEADLINE_SECONDS = 20.0
POLL_MILLISECONDS = 10

Reply = ToWorker | tuple[ToWorker, Buffer] | list[bytes] | None  # bytes: frames that are no message


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Poll the condition, and fail when it does not become true in time."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {what}"
        pause.wait(0.01)


class Polite:
    """Replies to everything as a server with three weights would; a test overrides what it is about."""

    def __init__(self) -> None:
        self.weights = np.array([1, 2, 3], dtype=np.float32)
        self.version = 1

    def replies(self, peer: bytes, message: ToServer, vector: bytes) -> Sequence[Reply]:
        """The messages to send back, in order."""
        return [self.reply(message, vector)]

    def reply(self, message: ToServer, vector: bytes) -> Reply:
        match message:
            case messages.Hello():
                return welcome(message.request)
            case messages.Seed():
                return messages.Seeded(request=message.request, accepted=True, version=1)
            case messages.Pull():
                return self.newest(message.request)
            case messages.Push():
                self.version += 1
                self.weights = self.weights - np.frombuffer(vector, dtype=np.float32)
                return self.newest(message.request)
            case messages.Report():
                return messages.Noted(request=message.request, sequence=message.sequence)
            case messages.Heartbeat():
                return alive(message.request)
            case messages.Goodbye():
                return messages.Farewell(request=message.request)
        return None

    def newest(self, request: int) -> Reply:
        reply = messages.Weights(request=request, epoch=1, version=self.version, global_steps=0)
        return reply, self.weights.tobytes()


class LoopbackServer:
    """Listens on 127.0.0.1. `received` holds all messages: the peer, the message, and the bytes of its vector."""

    def __init__(self, behaviour: Polite) -> None:
        self.received: list[tuple[bytes, ToServer, bytes]] = []
        self.failure: BaseException | None = None
        self._behaviour = behaviour
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self.port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"127.0.0.1:{self.port}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="loopback-server")
        self._thread.start()

    def received_of(self, kind: type) -> list[Any]:
        """All messages of a kind, in order."""
        return [message for _, message, _ in self.received if isinstance(message, kind)]

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._context.destroy(linger=0)
        assert self.failure is None, self.failure

    def _serve(self) -> None:
        try:
            while not self._over.is_set():
                if self._router.poll(POLL_MILLISECONDS):
                    peer, *frames = self._router.recv_multipart()
                    message, vector = read_to_server(frames)
                    whole = b"".join(bytes(part) for part in vector)
                    self.received.append((peer, message, whole))
                    for reply in self._behaviour.replies(peer, message, whole):
                        self._send(peer, reply)
        except BaseException as failure:
            self.failure = failure

    def _send(self, peer: bytes, reply: Reply) -> None:
        match reply:
            case None:
                return
            case list():
                frames: Sequence[Buffer] = reply
            case (message, vector):
                frames = to_frames(message, [vector])
            case _:
                frames = to_frames(reply)
        self._router.send_multipart([peer, *frames])


@contextmanager
def serving(behaviour: Polite | None = None) -> Iterator[LoopbackServer]:
    """A server for the length of a block. An error in its thread fails the test."""
    server = LoopbackServer(behaviour or Polite())
    try:
        yield server
    finally:
        server.close()
