"""Messages off a socket, frame by frame."""

from typing import Any

import zmq

from common.wire import MAX_FRAMES

# Beside those of a message: its sender's name, places in memory, and one that shows that there are too many.
MOST_FRAMES = MAX_FRAMES + 3
_AT_ONCE = int(zmq.NOBLOCK)


def receive_frames(socket: zmq.Socket[Any]) -> list[zmq.Frame]:
    """
    The frames of the message that waits; of one that has too many, as many as show it. Raises zmq.Again if none waits.

    pyzmq's recv_multipart asks the socket after each frame whether there are more, which the frame knows. That takes
    three times as long, and nobody else is served while a message of thousands of empty frames is read.
    """
    frames = [frame := socket.recv(_AT_ONCE, copy=False)]
    while frame.more:
        frame = socket.recv(_AT_ONCE, copy=False)
        if len(frames) < MOST_FRAMES:
            frames.append(frame)
    return frames
