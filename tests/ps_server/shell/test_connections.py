"""The connections of a server's socket, with a real socket."""

import contextlib
import os
import socket
import termios
from functools import partial

import pytest
import zmq

from ps_common.protocol.wire import MAX_FRAMES
from ps_common.sockets import tcp_connections
from ps_common.sockets.zmq_sockets import receive_frames
from ps_server.shell import connections as connections_module
from ps_server.shell.connections import Connections
from tests.ps_client.loopback_server import wait_until
from tests.zmtp import connected, frame, message


def open_here() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_connections_that_end_before_they_are_looked_at_harm_neither_the_server_nor_its_files() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    try:
        connections = Connections(
            context,
            router,
            vector_bytes=lambda: 0,
            run_bytes=lambda: 0,
            budget_bytes=2**20,
            is_locked=False,
        )
        port = router.bind_to_random_port("tcp://127.0.0.1")
        before = open_here()
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        wait_until(lambda: open_here() >= before + 40, "ZeroMQ has accepted all")
        for client in clients:
            client.close()
        wait_until(lambda: open_here() <= before, "ZeroMQ has closed all")  # their events still wait
        files = [os.open(os.devnull, os.O_RDONLY) for _ in range(60)]  # some have the descriptors that are free now
        connections.look(now=1.0)
        connections.look(now=100.0)
        connections.close()
        for file in files:
            os.close(file)  # fails where somebody else has closed it
    finally:
        context.destroy(linger=0)


def test_who_sends_a_message_of_too_many_frames_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Each frame takes a microsecond to read, in which nobody else is served."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    try:
        how = {"vector_bytes": lambda: 2**20, "run_bytes": lambda: 0}
        connections = Connections(context, router, **how, budget_bytes=2**20, is_locked=False)  # type: ignore[arg-type]
        worker = connected(f"127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
        worker.setblocking(True)
        for frames in (MAX_FRAMES, 10 * MAX_FRAMES):
            worker.sendall(message([b""] * frames))
            assert router.poll(10_000)
            connections.delivered(receive_frames(router), now=1.0)
            assert ("too many frames" in caplog.text) == (frames > MAX_FRAMES)
        assert worker.recv(2**16) == b""
        worker.close()
        connections.close()
    finally:
        context.destroy(linger=0)


def test_who_takes_no_replies_is_cut_off_and_who_reads_slowly_is_not(caplog: pytest.LogCaptureFixture) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.setsockopt(zmq.SNDHWM, 8)
    how = {"vector_bytes": lambda: 2**20, "run_bytes": lambda: 0}
    connections = Connections(context, router, **how, budget_bytes=2**30, is_locked=False)  # type: ignore[arg-type]
    peers: list[socket.socket] = []
    now = 0.0

    def is_left_alone(*, seconds: float) -> bool:
        """The slow one reads on, and some seconds later the server looks at both."""
        nonlocal now
        now += seconds
        assert peers[1].recv(2**16)
        connections.drained()
        connections.look(now=now)
        return len(connections) == 1

    try:
        endpoint = f"127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
        for _ in range(2):
            peers.append(connected(endpoint))
            peers[-1].sendall(message([b"pull"]))
            frames = router.recv_multipart(copy=False)
            connections.delivered(frames, now=now)
            with contextlib.suppress(zmq.Again):
                while True:
                    router.send_multipart([frames[0].bytes, bytes(2**22)], zmq.NOBLOCK)
        peers[1].settimeout(10)
        wait_until(lambda: is_left_alone(seconds=2.0), "the silent one is cut off")
        assert "takes nothing of the replies" in caplog.text
        assert now >= 60
        assert len(connections) == 1, "the slow one is still there"
    finally:
        for peer in peers:
            peer.close()
        connections.close()
        context.destroy(linger=0)


def test_first_weights_as_long_as_the_protocol_allows_are_received_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than a second, and more memory than twice the push budget."""
    longest, part = 2**26, 2**22
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    used = 0
    monkeypatch.setattr(connections_module, "bytes_in_use", lambda: used)
    try:
        connections = Connections(
            context,
            router,
            vector_bytes=lambda: longest,
            run_bytes=lambda: 0,
            budget_bytes=2**20,
            is_locked=False,
        )
        worker = connected(f"127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}")
        worker.sendall(message([b"hello"]))
        connections.delivered(router.recv_multipart(copy=False), now=1.0)
        worker.setblocking(True)
        sent = 0
        while sent < longest:
            worker.sendall(frame(bytes(part), more=sent + part < longest))
            sent = used = sent + part
            if sent < longest:
                wait_until(partial(_has_arrived, connections, sent), "so much has arrived")
            connections.drained()
            connections.look(now=2.0 + sent / part)
        assert sum(len(one) for one in router.recv_multipart()[1:]) == longest
        worker.close()
        connections.close()
    finally:
        context.destroy(linger=0)


def _has_arrived(connections: Connections, size: int) -> bool:
    """All of this size, and read by ZeroMQ."""
    (descriptor,) = connections._tcp._sockets
    borrowed = connections._tcp._sockets[descriptor]
    _, received = tcp_connections._counters(borrowed)
    return received >= size and not tcp_connections._waiting(descriptor, termios.FIONREAD)
