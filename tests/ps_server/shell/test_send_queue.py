"""Messages that wait for a peer that reads slowly, and those that do not, over real sockets."""

import msgspec
import zmq

from common.protocol.messages import Frame, Noted, ToWorker, WatchedFrame
from common.protocol.wire import read_to_worker
from common.sockets.zmq_sockets import dealer
from ps_server.machine.effects import Send
from ps_server.shell.router_socket import router
from ps_server.shell.send_queue import SendQueue

FRAMES = 1000  # of 48 KiB: more than ZeroMQ and the kernel take for a connection that does not read
SECONDS = 10_000


def received(socket: zmq.Socket[bytes]) -> ToWorker:
    assert socket.poll(SECONDS)
    return read_to_worker(socket.recv_multipart())[0]


def test_frames_for_a_slow_viewer_are_dropped_and_never_wait() -> None:
    with zmq.Context() as context, router(context) as server, dealer(context, None) as viewer:
        port = server.bind_to_random_port("tcp://127.0.0.1")
        viewer.setsockopt(zmq.LINGER, 0)
        server.setsockopt(zmq.LINGER, 0)
        viewer.connect(f"tcp://127.0.0.1:{port}")
        viewer.send(b"here")
        assert server.poll(SECONDS)
        peer = server.recv_multipart()[0]
        queue = SendQueue(server, place=lambda _: None, renewed=lambda send, _: send)
        frame = Frame(image=bytes(48 * 1024), score=0.0, value=0.0)
        for number in range(FRAMES):
            shown = msgspec.structs.replace(frame, score=float(number))
            queue.send(Send(peer, WatchedFrame(worker_id="a", frame=shown)), now=0.0)
            assert queue.next_due() is None, "nothing waits"
        scores = [frame.score]
        while viewer.poll(200):
            message = received(viewer)
            assert isinstance(message, WatchedFrame)
            scores.append(message.frame.score)
        assert scores == sorted(scores)
        assert 1 < len(scores) < FRAMES
        queue.send(Send(peer, Noted(request=1, sequence=1)), now=0.0)
        assert isinstance(received(viewer), Noted), "replies go on"
