"""
The connection with a run's server: a subscription, which finds the server again after a restart or a takeover.

A run is served at one address at a time, but not always at the same: a server that is started again may have another
port, and a standby has another address. The link tries one address after another until a server answers.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import cast

import zmq
import zmq.asyncio

from ps_common.errors import WireError
from ps_common.protocol.messages import (
    Event,
    Refused,
    StatusReply,
    StatusRequest,
    StatusUpdate,
    ToServer,
    ToWorker,
    Watch,
    WatchedFrame,
    Watching,
)
from ps_common.protocol.status import Status
from ps_common.protocol.wire import read_to_worker, to_frames
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.subscription import RENEWALS_IN_A_LEASE, Subscriber
from ps_common.sockets.zmq_sockets import connect, dealer, look_up

RETRY_SECONDS = 1.0  # between two requests to a silent server
SILENT_SECONDS = 5.0  # after which the next address is tried
TURN_MILLISECONDS = 250  # between two looks at what is due
WATCH_AGAIN_SECONDS = 2.0  # after a worker that is not there (yet) was asked for
# A name server may take long to say no: lookups wait for each other, and nothing else of ps-web waits for them.
LOOKUPS = ThreadPoolExecutor(8, thread_name_prefix="lookup")
FIRST_WATCH = 1 << 32  # requests with this number and later ones are WATCH, those before it SUBSCRIBE


class ServerLink:
    """
    `addresses` has the places to look, the likeliest first; it is called again for each new connection.

    `take_status`, `take_event` and `take_frame` get what the server sends; an event with the epoch in which its number
    counts. `watched` returns the worker whose game is wanted; "": none.
    """

    def __init__(
        self,
        addresses: Callable[[], Sequence[str]],
        *,
        keys: ClientKeys | None,
        take_status: Callable[[Status], None],
        take_event: Callable[[int, Event], None],
        watched: Callable[[], str],
        take_frame: Callable[[WatchedFrame], None],
    ) -> None:
        self._addresses = addresses
        self._keys = keys
        self._take_status = take_status
        self._take_event = take_event
        self._watched = watched
        self._take_frame = take_frame
        self._subscriber = Subscriber(retry_seconds=RETRY_SECONDS)
        self._watch_due = 0.0
        self.address = ""  # of the server that answers; "" while none does
        self.is_asking = True  # no address has answered yet, and not all of them have had the time to

    async def run(self) -> None:
        """Until cancelled."""
        context = zmq.asyncio.Context()
        turn = 0
        try:
            while True:
                places = list(dict.fromkeys(self._addresses())) or [""]
                await self._subscribe(context, places[turn % len(places)], is_only_one=len(places) == 1)
                turn += 1
                self.is_asking = self.is_asking and turn < len(places)
        finally:
            self.address, self.is_asking = "", True
            context.destroy(linger=0)

    def subscribe_anew(self) -> None:
        """Another run is served now: its events come from the first one on, on a new connection."""
        self._subscriber = Subscriber(retry_seconds=RETRY_SECONDS)

    async def _subscribe(self, context: zmq.asyncio.Context, address: str, *, is_only_one: bool) -> None:
        """As long as the server at this address answers. A standby has no subscribers: it is asked for its status."""
        over_ipv6 = await _looked_up(address) if address else None
        with cast(zmq.asyncio.Socket, dealer(context, self._keys)) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            if over_ipv6 is not None:
                connect(socket, address, over_ipv6=over_ipv6)
            subscriber = self._subscriber
            subscriber.renew_by(0.0)
            watch, watched = FIRST_WATCH, ""
            heard = time.monotonic()
            while subscriber is self._subscriber and (now := time.monotonic()) - heard < SILENT_SECONDS:
                is_connected = int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT
                if is_connected and (request := subscriber.due(now=now)):
                    await _send(socket, request)
                if self.address and (worker := self._watched()) and (now >= self._watch_due or worker != watched):
                    watch, watched, self._watch_due = watch + 1, worker, now + WATCH_AGAIN_SECONDS
                    await _send(socket, Watch(request=watch, worker_id=worker))
                if not await socket.poll(TURN_MILLISECONDS):
                    continue
                try:
                    frames = await socket.recv_multipart(zmq.NOBLOCK, copy=False)
                    message, _ = read_to_worker([frame.buffer for frame in frames])
                except zmq.Again:  # the connection has ended since the look, and its messages with it
                    continue
                except WireError:
                    break
                if isinstance(message, Refused) and message.request < FIRST_WATCH:  # it does not serve, or not us
                    if message.code != "standby" or not is_only_one:
                        break
                    await _send(socket, StatusRequest(request=message.request))
                    continue
                heard, self.address, self.is_asking = time.monotonic(), address, False
                self._take(message, heard)
            self.address = ""

    def _take(self, message: ToWorker, now: float) -> None:
        match message:
            case Watching():
                self._watch_due = now + message.lease_seconds / RENEWALS_IN_A_LEASE
            case WatchedFrame():
                self._take_frame(message)
            case StatusReply():
                self._take_status(message.status)
        match self._subscriber.take(message, now=now):
            case StatusUpdate() as update:
                self._take_status(update.status)
            case Event() as event:
                self._take_event(self._subscriber.epoch, event)


async def _send(socket: zmq.asyncio.Socket, message: ToServer) -> None:
    """Send it, or drop it where the connection has ended: to wait for room would be to wait for ever."""
    with suppress(zmq.Again):
        await socket.send_multipart(to_frames(message), zmq.NOBLOCK)


async def _looked_up(address: str) -> bool | None:
    """Whether to connect over IPv6; None while the name has no address: ZeroMQ would look it up again and again."""
    over_ipv6, _ = await asyncio.get_running_loop().run_in_executor(LOOKUPS, look_up, address)
    return over_ipv6
