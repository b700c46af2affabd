"""The server's ROUTER socket. Its options are set on purpose, before bind."""

import zmq

from ps_common.protocol.wire import MAX_FRAME_BYTES

RECEIVE_HIGH_WATER = 16  # whole messages of one peer, received and not yet handled
SEND_HIGH_WATER = 8  # whole messages for one peer, not yet taken by its connection


def router(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A ROUTER whose options are set on purpose, before bind."""
    socket = context.socket(zmq.ROUTER)
    # Else ZeroMQ silently drops replies to a connection that is gone or full.
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    # In whole messages of one peer; the defaults of 1000 would be gigabytes of weights.
    socket.setsockopt(zmq.RCVHWM, RECEIVE_HIGH_WATER)
    socket.setsockopt(zmq.SNDHWM, SEND_HIGH_WATER)
    # A larger frame disconnects its sender before memory is allocated.
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    # Many workers may start at the same moment.
    socket.setsockopt(zmq.BACKLOG, 1024)
    # Frees the connection of a host that vanished without FIN after two minutes. (ZeroMQ's own heartbeats would cut a
    # large frame on a slow link.)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 60)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, 10)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 6)
    return socket
