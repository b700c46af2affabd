"""The connections of a server's socket, with a real socket."""

import os
import socket

import zmq

from ps_server.shell.connections import Connections
from tests.ps_client.loopback_server import wait_until


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
            is_known=lambda peer: False,
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
