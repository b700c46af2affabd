import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import zmq

from ps_common.errors import RequestRefused
from ps_common.protocol import messages
from ps_common.protocol.messages import Pull, Stopping, StopRequest, ToServer
from ps_common.protocol.wire import CHUNK_BYTES, Buffer, read_to_server, to_frames
from ps_common.sockets.request import ask

PATIENCE_SECONDS = 20.0  # of a test that expects an answer; it takes milliseconds
POLL_MILLISECONDS = 20

Reply = Sequence[Buffer]  # the frames of one
Answer = Callable[[ToServer], Sequence[Reply]]


@contextmanager
def server(answer: Answer, *, repeat: int = 1) -> Iterator[str]:
    """A ROUTER that answers each message, `repeat` times, one poll apart; its address. It is gone afterwards."""
    stopped = threading.Event()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        port = router.bind_to_random_port("tcp://127.0.0.1")

        def serve() -> None:
            to_send: list[tuple[bytes, Sequence[Reply]]] = []
            while not stopped.is_set():
                if router.poll(POLL_MILLISECONDS):
                    peer, *frames = router.recv_multipart()
                    to_send += [(peer, answer(read_to_server(frames)[0]))] * repeat
                if to_send:
                    peer, replies = to_send.pop(0)
                    for reply in replies:
                        router.send_multipart([peer, *reply])

        thread = threading.Thread(target=serve, name="server")
        thread.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            stopped.set()
            thread.join()


def stopping(message: ToServer) -> list[Buffer]:
    return to_frames(Stopping(request=message.request))


def weights(message: ToServer, *vector: bytes) -> list[Buffer]:
    return to_frames(messages.Weights(request=message.request, epoch=1, version=2, global_steps=3), vector)


def test_a_question_is_answered() -> None:
    heard: list[ToServer] = []

    def answer(message: ToServer) -> list[Reply]:
        heard.append(message)
        return [stopping(message)]

    with server(answer) as address:
        reply, vector = ask(address, StopRequest(request=7, reason="enough"), timeout_seconds=PATIENCE_SECONDS)
    assert heard == [StopRequest(request=7, reason="enough")]
    assert reply == Stopping(request=7)
    assert list(vector) == []


def test_an_answer_brings_its_vector_which_outlives_the_connection() -> None:
    content = bytes(range(256)) * 4 * (CHUNK_BYTES // 1024) + b"end"
    with server(lambda message: [weights(message, content)]) as address:
        reply, vector = ask(address, Pull(request=1), timeout_seconds=PATIENCE_SECONDS)
    assert isinstance(reply, messages.Weights)
    assert [len(frame) for frame in vector] == [CHUNK_BYTES, 3]
    assert b"".join(vector) == content


@pytest.mark.parametrize("request_", [0, 5], ids=["an unreadable question", "the question"])
def test_a_refusal_is_raised_with_its_code_and_reason(request_: int) -> None:
    refusal = to_frames(messages.Refused(request=request_, code="no_weights", reason="the run has no weights yet"))
    with server(lambda _: [refusal]) as address, pytest.raises(RequestRefused) as caught:
        ask(address, Pull(request=5), timeout_seconds=PATIENCE_SECONDS)
    assert (caught.value.code, caught.value.reason) == ("no_weights", "the run has no weights yet")


def refused(code: str) -> Answer:
    return lambda message: [to_frames(messages.Refused(request=message.request, code=code, reason=f"{code} there"))]


def test_a_server_and_its_standby_are_asked_at_once_and_the_one_that_serves_counts() -> None:
    """However long the other may be silent, and whichever of them is named first."""
    with (
        server(lambda message: [stopping(message)]) as served,
        server(refused("standby")) as standby,
        server(lambda _: []) as silent,
    ):
        for pair in ((served, standby), (standby, served), (silent, served), ("no.such.host.example:1", served)):
            began = time.monotonic()
            assert ask(",".join(pair), StopRequest(request=1), timeout_seconds=PATIENCE_SECONDS)[0] == Stopping(
                request=1
            )
            assert time.monotonic() - began < PATIENCE_SECONDS / 2


def test_a_refusal_of_the_server_that_serves_is_final() -> None:
    with (
        server(refused("bad_setting")) as served,
        server(lambda _: []) as silent,
        pytest.raises(RequestRefused, match="bad_setting there"),
    ):
        ask(f"{silent},{served}", StopRequest(request=1), timeout_seconds=PATIENCE_SECONDS)
