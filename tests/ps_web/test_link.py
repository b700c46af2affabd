"""The connection with a server: what it asks for, and what ends it. The test is the server."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack

import pytest
import zmq
import zmq.asyncio

from ps_common.protocol.messages import (
    Event,
    Frame,
    Refused,
    Subscribe,
    Subscribed,
    ToWorker,
    Watch,
    WatchedFrame,
    Watching,
)
from ps_common.protocol.wire import read_to_server, to_frames
from ps_web import link
from ps_web.link import ServerLink

SECONDS = 20.0
FRAME = WatchedFrame(worker_id="a", frame=Frame(score=1.0, value=2.0))


def link_to(
    addresses: Callable[[], Sequence[str]],
    *,
    take_event: Callable[[int, Event], None] = lambda *_: None,
    watched: Callable[[], str] = str,
    take_frame: Callable[[WatchedFrame], None] = lambda _: None,
) -> ServerLink:
    """A link whose other news nobody takes."""
    return ServerLink(
        addresses,
        keys=None,
        take_status=lambda _: None,
        take_event=take_event,
        watched=watched,
        take_frame=take_frame,
    )


@contextlib.asynccontextmanager
async def running(page_link: ServerLink) -> AsyncIterator[None]:
    """The link runs, for at most SECONDS."""
    task = asyncio.create_task(page_link.run())
    try:
        async with asyncio.timeout(SECONDS):
            yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_a_worker_that_is_not_there_yet_is_asked_for_again_on_the_same_subscription() -> None:
    frames: list[WatchedFrame] = []
    peers: set[bytes] = set()
    watches: list[str] = []

    async def serve(router: zmq.asyncio.Socket) -> None:
        while True:
            peer, *read = await router.recv_multipart()
            peers.add(peer)
            message, _ = read_to_server(read)
            replies: list[ToWorker] = []
            if isinstance(message, Subscribe):
                replies = [Subscribed(request=message.request, lease_seconds=1.0, event=0, epoch=1)]
            elif isinstance(message, Watch):
                watches.append(message.worker_id)
                refused = Refused(request=message.request, code="no_such_worker", reason="")
                watching = Watching(request=message.request, lease_seconds=9.0)
                replies = [refused] if len(watches) == 1 else [watching, FRAME]
            for reply in replies:
                await router.send_multipart([peer, *to_frames(reply)])

    async def check() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
            address = f"127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
            page_link = link_to(lambda: [address], watched=lambda: "a", take_frame=frames.append)
            tasks = [asyncio.create_task(serve(router)), asyncio.create_task(page_link.run())]
            async with asyncio.timeout(SECONDS):
                while not frames:
                    await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    asyncio.run(check())
    assert frames == [FRAME]
    assert watches == ["a", "a"]
    assert len(peers) == 1


def test_a_name_is_resolved_beside_the_pages_which_a_slow_name_server_does_not_hold_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []
    answers = threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        threads.append(threading.current_thread())
        assert answers.wait(20)
        raise OSError("no name server answers")

    monkeypatch.setattr(link, "SILENT_SECONDS", 0.01)
    monkeypatch.setattr("socket.getaddrinfo", resolve)

    async def check() -> None:
        async with AsyncExitStack() as links:
            for _ in range(40):
                await links.enter_async_context(running(link_to(lambda: ["ps-0.ps:9"])))
            while not threads:
                await asyncio.sleep(0.01)
            assert await asyncio.wait_for(asyncio.to_thread(int, "7"), 10) == 7
            answers.set()
            while len(threads) < 41:
                await asyncio.sleep(0.01)

    asyncio.run(check())
    assert threading.main_thread() not in threads


def test_a_server_that_ends_between_the_look_and_the_message_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ drops what a connection has brought when the connection ends: nothing is there to be received then."""
    monkeypatch.setattr(link, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(link, "TURN_MILLISECONDS", 10)
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    address = f"127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
    asked: list[str] = []

    def addresses() -> list[str]:
        asked.append(address)
        return [address]

    looked = zmq.asyncio.Socket.poll

    async def look_and_lose(socket: zmq.asyncio.Socket, timeout: int) -> int:
        if not router.closed and router.poll(0):
            peer, *read = router.recv_multipart()
            request = read_to_server(read)[0].request
            router.send_multipart([peer, *to_frames(Subscribed(request=request, lease_seconds=9.0, event=0, epoch=1))])
        found = await looked(socket, timeout)
        if found:
            router.close(linger=0)
            while int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                await asyncio.sleep(0)
        return found

    monkeypatch.setattr(zmq.asyncio.Socket, "poll", look_and_lose)

    async def check() -> None:
        async with running(link_to(addresses)):
            while not router.closed:
                await asyncio.sleep(0.01)
            before = len(asked)
            while len(asked) == before:
                await asyncio.sleep(0.01)

    asyncio.run(check())
    context.term()
