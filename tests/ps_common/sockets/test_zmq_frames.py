"""Messages off a socket: whole, one after another, and never too many frames."""

from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from ps_common.protocol.wire import MAX_FRAMES
from ps_common.sockets.zmq_sockets import MOST_FRAMES, receive_frames

Pair = tuple["zmq.Socket[Any]", "zmq.Socket[Any]"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two connected sockets."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("inproc://pair")
        other.connect("inproc://pair")
        yield one, other


def received(socket: "zmq.Socket[Any]") -> list[bytes]:
    return [frame.bytes for frame in receive_frames(socket)]


def test_messages_come_whole_and_one_after_another(pair: Pair) -> None:
    messages = [[b"alone"], [b"tag", b"", b"x" * 100_000], [b"tag", b"header"]]
    for message in messages:
        pair[0].send_multipart(message)
    assert [received(pair[1]) for _ in messages] == messages


def test_of_too_many_frames_only_so_many_are_kept_and_the_next_message_is_whole(pair: Pair) -> None:
    pair[0].send_multipart([b"%d" % number for number in range(5000)])
    pair[0].send_multipart([b"next"])
    assert received(pair[1]) == [b"%d" % number for number in range(MOST_FRAMES)]
    assert received(pair[1]) == [b"next"]
    assert MOST_FRAMES > MAX_FRAMES + 2, "with a sender's name and places in memory it is still seen to be too long"
