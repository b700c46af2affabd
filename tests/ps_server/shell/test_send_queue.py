"""Messages that wait for a peer that reads slowly, and those that do not, over real sockets."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
import zmq
from numpy.typing import NDArray

from ps_common.protocol.messages import Frame, HandedOver, Noted, State, ToWorker, Update, WatchedFrame, Weights
from ps_common.protocol.wire import read_to_worker
from ps_common.sockets.zmq_sockets import dealer
from ps_server.shell.send_queue import LONGEST_PAUSE_SECONDS, MOST_HELD, SendQueue
from ps_server.shell.server_sockets import SEND_HIGH_WATER, router_socket
from ps_server.state.effects import Send
from ps_server.state.weight_store import Snapshot

FRAMES = 1000  # of 48 KiB: more than ZeroMQ and the kernel take for a connection that does not read
FOLLOWS = 50
MILLISECONDS = 10_000


@contextmanager
def queue_to_a_peer(
    renewed: Callable[[Send, bool], Send] = lambda send, _: send,
) -> Iterator[tuple[SendQueue, bytes, zmq.Socket[bytes]]]:
    """A send queue, the name of a peer that has connected, and the peer's socket."""
    with zmq.Context() as context, router_socket(context) as server, dealer(context, None) as peer:
        port = server.bind_to_random_port("tcp://127.0.0.1")
        peer.setsockopt(zmq.LINGER, 0)
        server.setsockopt(zmq.LINGER, 0)
        peer.connect(f"tcp://127.0.0.1:{port}")
        peer.send(b"here")
        assert server.poll(MILLISECONDS)
        queue = SendQueue(server, place=lambda _: None, renewed=renewed)
        yield queue, server.recv_multipart()[0], peer


def received(socket: zmq.Socket[bytes]) -> ToWorker:
    assert socket.poll(MILLISECONDS)
    return read_to_worker(socket.recv_multipart())[0]


def test_frames_for_a_slow_viewer_are_dropped_and_never_wait() -> None:
    with queue_to_a_peer() as (queue, name, viewer):
        frame = Frame(image=bytes(48 * 1024), score=0.0, value=0.0)
        for number in range(FRAMES):
            shown = msgspec.structs.replace(frame, score=float(number))
            queue.send(Send(name, WatchedFrame(worker_id="a", frame=shown)), now=0.0)
            assert queue.next_due() is None, "nothing waits"
        scores = [frame.score]
        while viewer.poll(200):
            message = received(viewer)
            assert isinstance(message, WatchedFrame)
            scores.append(message.frame.score)
        assert scores == sorted(scores)
        assert 1 < len(scores) < FRAMES
        queue.send(Send(name, Noted(request=1, sequence=1)), now=0.0)
        assert isinstance(received(viewer), Noted), "replies go on"


def test_a_standby_that_asks_again_and_again_and_reads_nothing_holds_few_states() -> None:
    """The vectors that are alive are those that ZeroMQ has accepted, and those of the newest FOLLOW."""
    alive: list[weakref.ref[NDArray[np.uint8]]] = []

    def vector() -> list[memoryview]:
        array = np.zeros(2**20, np.uint8)
        alive.append(weakref.ref(array))
        return [array.data]

    with queue_to_a_peer() as (queue, name, standby):
        queue.send(Send(name, Noted(request=1, sequence=1)), now=0.0)
        for request in range(1, FOLLOWS + 1):
            state = State(request=request, number=request, record_bytes=0, vectors=())
            update = Update(request=request, number=request + 1, worker_id="a", message=HandedOver())
            queue.send(Send(name, state, vector=vector()), now=0.0)
            queue.send(Send(name, update, vector=vector()), now=0.0)
        assert sum(array() is not None for array in alive) <= SEND_HIGH_WATER + 8
        last: ToWorker = received(standby)
        assert isinstance(last, Noted), "other replies are not dropped"
        now = 0.0
        while not (isinstance(last, Update) and last.request == FOLLOWS):
            now += LONGEST_PAUSE_SECONDS
            queue.send_waiting(now=now)
            state_before, last = last, received(standby)
        assert isinstance(state_before, State)
        assert state_before.request == FOLLOWS


class NewestWeights:
    """Replies with weights of one byte, and how often they were encoded."""

    def __init__(self) -> None:
        self.encoded = 0
        self.publish(0)

    def publish(self, version: int) -> None:
        self.snapshot = Snapshot(version, "float32", self._encode, target=False)

    def _encode(self, snapshot: Snapshot) -> memoryview:
        self.encoded += 1
        return memoryview(bytes([snapshot.version]))

    def reply(self, peer: bytes, request: int = 1) -> Send:
        weights = Weights(request=request, epoch=1, version=self.snapshot.version, global_steps=0)
        return Send(peer, weights, self.snapshot)

    def renewed(self, send: Send, target: bool) -> Send:
        assert not target
        return self.reply(send.to, send.message.request)


def test_replies_to_requests_that_were_read_together_bring_the_newest_weights_encoded_once() -> None:
    newest = NewestWeights()
    with queue_to_a_peer(newest.renewed) as (queue, name, peer):
        queue.serves(1000)
        for version in range(1, MOST_HELD):
            newest.publish(version)
            queue.send(newest.reply(b"gone-%d" % version), now=0.0)
        newest.publish(MOST_HELD)
        assert newest.encoded == 0
        queue.send(newest.reply(name), now=0.0)
        assert newest.encoded == 1
        assert peer.poll(MILLISECONDS)
        message, vector = read_to_worker(peer.recv_multipart())
        assert isinstance(message, Weights)
        assert (message.version, [bytes(one) for one in vector]) == (MOST_HELD, [bytes([MOST_HELD])])


def test_replies_with_weights_leave_before_a_later_reply_to_the_same_peer_and_at_the_end_of_a_burst() -> None:
    newest = NewestWeights()
    with queue_to_a_peer(newest.renewed) as (queue, name, peer):
        queue.serves(1000)
        queue.send(newest.reply(name), now=0.0)
        assert newest.encoded == 0
        queue.send(Send(name, Noted(request=2, sequence=1)), now=0.0)
        assert isinstance(received(peer), Weights)
        assert isinstance(received(peer), Noted)
        queue.send(newest.reply(name, request=3), now=0.0)
        queue.send_waiting(now=0.0)
        assert received(peer).request == 3
