"""What a hostile server sends: a message without an end costs its receiver no more than one that it may send."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from ps_common.errors import ServerUnreachable
from ps_common.program.resources import bytes_in_use
from ps_common.protocol.messages import StatusRequest
from ps_common.protocol.wire import MAX_REPLY_HEADER_BYTES
from ps_common.sockets.request import ask
from ps_common.sockets.tcp_connections import SLACK_BYTES, Inbox
from ps_common.sockets.zmq_sockets import connect, dealer
from tests.ps_client.loopback_server import wait_until
from tests.zmtp import GREETING, READY, frame, message

VECTOR_BYTES = 2**20
LONGEST = VECTOR_BYTES + MAX_REPLY_HEADER_BYTES + SLACK_BYTES
TO_DEALER = READY.replace(b"DEALER", b"ROUTER")


@contextmanager
def hostile(*, parts: list[bytes]) -> Iterator[tuple[str, list[int]]]:
    """A server that sends these bytes on each connection, and then waits; and how many connections there were."""
    listener, connections, over = socket.create_server(("127.0.0.1", 0)), [0], threading.Event()

    def serve() -> None:
        while not over.is_set():
            peer, _ = listener.accept()
            with peer:
                connections[0] += 1
                peer.settimeout(0.5)  # whose receiver was shut down hears of it with the next probe of a full window
                try:
                    peer.sendall(GREETING + TO_DEALER)
                    for part in parts:
                        peer.sendall(part)
                    over.wait(5.0)
                except OSError:  # it was cut off
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]
    try:
        yield f"127.0.0.1:{port}", connections
    finally:
        over.set()
        with socket.create_connection(("127.0.0.1", port)):
            pass
        thread.join()
        listener.close()


@contextmanager
def inbox_of(endpoint: str) -> Iterator[Inbox]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    inbox = Inbox(context, dealer(context, None), is_locked=False)
    connect(inbox.socket, endpoint)
    try:
        yield inbox
    finally:
        inbox.close()
        context.destroy(linger=0)


def received(inbox: Inbox) -> list[int]:
    """The lengths of the frames of a message that has arrived; [] without one."""
    inbox.socket.poll(5)
    try:
        return [len(frame) for frame in inbox.receive(most_bytes=VECTOR_BYTES)]
    except zmq.Again:
        return []


def test_a_message_without_an_end_is_cut_off_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = [frame(bytes(2**20), more=True)] * 2000
    with hostile(parts=endless) as (endpoint, connections), inbox_of(endpoint) as inbox:
        before = most = bytes_in_use()

        def is_cut_off_twice() -> bool:
            nonlocal most
            assert received(inbox) == []
            most = max(most, bytes_in_use())
            return inbox.cut_off >= 2 and connections[0] > 2

        wait_until(is_cut_off_twice, "it is cut off")
        assert most - before < 600 * 2**20, "of two gigabytes on each connection"


def test_a_program_that_asks_a_hostile_server_takes_no_endless_reply() -> None:
    endless = [frame(bytes(2**20), more=True)] * 2000
    over = threading.Event()
    before, grown = bytes_in_use(), [0]

    def watch() -> None:
        while not over.wait(0.01):
            grown[0] = max(grown[0], bytes_in_use() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with hostile(parts=endless) as (endpoint, connections), pytest.raises(ServerUnreachable):
            ask(endpoint, StatusRequest(request=1), timeout_seconds=2.0)
    finally:
        over.set()
        watcher.join()
    assert connections[0] > 2, "it was cut off, and connected again"
    assert grown[0] < 600 * 2**20, "of two gigabytes on each connection"


def test_the_longest_message_that_a_server_may_send_arrives_however_slowly() -> None:
    longest = [bytes(2**19), bytes(2**19), bytes(VECTOR_BYTES)]
    whole = message(longest)
    parts = [whole[at : at + 2**16] for at in range(0, len(whole), 2**16)]
    with hostile(parts=parts) as (endpoint, _), inbox_of(endpoint) as inbox:
        lengths: list[int] = []
        wait_until(lambda: bool(lengths.extend(received(inbox)) or lengths), "it arrives")
        assert lengths == [len(part) for part in longest]
        assert inbox.cut_off == 0
    assert sum(map(len, longest)) < LONGEST


def test_connections_of_one_context_follow_each_other_at_once() -> None:
    """ZeroMQ gives names free some time after a socket was closed: a monitor with the name of the last one has none."""
    with zmq.Context() as context:
        for _ in range(1000):
            Inbox(context, dealer(context, None), is_locked=False).close()
