"""
The send queue: replies to peers that read slowly, or not at all.

ZeroMQ accepts a few whole messages for each peer. Further replies wait here, in order, so that a peer that reads in
bursts gets a reply to every push. Weights do not wait: a reply leaves with the newest weights. A status or the frame of
a game does not wait either: the next one is newer. Of the events of a slow subscriber the oldest are dropped, and the
next one counts them. A state for a standby replaces the former states and updates that wait for it. A peer that reads
nothing costs what ZeroMQ accepted, one state with its updates, and some small messages.

Among many workers, replies with weights to requests that were read together leave together: with the weights after the
last push, which are copied and encoded once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import msgspec
import zmq

from ps_common.protocol.messages import Event, State, StatusReply, StatusUpdate, ToWorker, Update, WatchedFrame
from ps_common.protocol.wire import Buffer, Places, chunks, to_frames, with_places
from ps_common.sockets.zmq_sockets import COPIED_BYTES, send_frames
from ps_server.state.effects import PeerId, Send
from ps_server.state.weight_store import Snapshot

MOST_WAITING = 128  # messages for one peer; a worker has up to 64 pushes in flight, and some other requests
MOST_EVENTS_WAITING = 250  # events for one peer; a new subscriber is sent fewer at once
# Replies with weights leave together, a share of the workers at once: the first of them waits for the others.
WORKERS_A_HELD, MOST_HELD = 8, 8
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.002, 0.25  # between two attempts; doubles while the peer reads nothing


class _Reply(msgspec.Struct, frozen=True, eq=False):
    """`places`: its weights in shared memory, if they are there. `target`: which weights it leaves with."""

    send: Send
    places: Places | None
    target: bool | None = None


@dataclass(eq=False)
class _Queue:
    """The replies that wait for one peer, and when the next attempt is due."""

    due: float
    pause: float = FIRST_PAUSE_SECONDS
    waiting: deque[_Reply] = field(default_factory=deque)
    events: deque[Event] = field(default_factory=deque)  # sent after these

    def add_event(self, event: Event) -> None:
        """Where too many events wait, the oldest is dropped; the one after it counts those that are missing."""
        if len(self.events) == MOST_EVENTS_WAITING:
            oldest = self.events.popleft()
            missed = self.events[0].missed + oldest.missed + 1
            self.events[0] = msgspec.structs.replace(self.events[0], missed=missed)
        self.events.append(event)

    def drop_replication(self) -> None:
        """Drop the states and updates of a former FOLLOW, to which the standby does not listen any more."""
        kept = [reply for reply in self.waiting if not isinstance(reply.send.message, State | Update)]
        self.waiting = deque(kept)


class SendQueue:
    """The sending half of one ROUTER. `now` is seconds of any monotonic clock."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        *,
        place: Callable[[Send], Places | None],
        renewed: Callable[[Send, bool], Send],
    ) -> None:
        """
        `place` writes the weights of a reply to the slot that its peer offered, if any. `renewed` attaches the newest
        weights, or target weights, to a reply.
        """
        self._socket = socket
        self._place = place
        self._renewed = renewed
        self._queues: dict[PeerId, _Queue] = {}
        self._held: dict[PeerId, _Reply] = {}  # replies that leave with the next `flush`, without their weights
        self._most_held = 0
        self._shared: tuple[ToWorker, list[zmq.Frame]] | None = None  # the newest message to all subscribers
        self._frames: WeakKeyDictionary[Snapshot, list[zmq.Frame]] = WeakKeyDictionary()

    def send(self, send: Send, *, now: float) -> None:
        """
        Send a reply, after those that wait for the same peer; weights with the next `flush`. A full queue drops it.
        """
        if send.to in self._held:
            self.flush(now=now)
        places = self._place(send)
        if places is not None or send.snapshot is None or self._most_held < 2:
            self._send_or_keep(_Reply(send, places), now=now)
            return
        self._held[send.to] = _Reply(msgspec.structs.replace(send, snapshot=None), None, send.snapshot.target)
        if len(self._held) >= self._most_held:
            self.flush(now=now)

    def serves(self, workers: int) -> None:
        """So many are alive now: two, say, are each sent their weights at once."""
        self._most_held = min(workers // WORKERS_A_HELD, MOST_HELD)

    def flush(self, *, now: float) -> None:
        """Send the replies that are held, with the newest weights; to be called before waiting for messages."""
        held, self._held = [self._with_weights(reply) for reply in self._held.values()], {}
        for reply in held:
            self._send_or_keep(reply, now=now)

    def _send_or_keep(self, reply: _Reply, *, now: float) -> None:
        send = reply.send
        if send.to not in self._queues and self._is_taken(reply):
            return
        if isinstance(send.message, StatusReply | StatusUpdate | WatchedFrame):
            return  # too large to wait: the peer repeats its request, or gets the next one
        queue = self._queues.setdefault(send.to, _Queue(due=now + FIRST_PAUSE_SECONDS))
        if isinstance(send.message, State):
            queue.drop_replication()
        if isinstance(send.message, Event):
            queue.add_event(send.message)
        elif len(queue.waiting) < MOST_WAITING:
            carries = reply.places is None and send.snapshot is not None
            target = send.snapshot.target if send.snapshot is not None and carries else None
            queue.waiting.append(_Reply(msgspec.structs.replace(send, snapshot=None), reply.places, target))

    def send_waiting(self, *, now: float) -> None:
        """Send the replies that peers have room for now, and those that are held."""
        self.flush(now=now)
        for peer, queue in [(peer, queue) for peer, queue in self._queues.items() if now >= queue.due]:
            before = len(queue.waiting) + len(queue.events)
            while queue.waiting and self._is_taken(self._with_weights(queue.waiting[0])):
                queue.waiting.popleft()
            while not queue.waiting and queue.events and self._is_taken(_Reply(Send(peer, queue.events[0]), None)):
                queue.events.popleft()
            moved = len(queue.waiting) + len(queue.events) < before
            queue.pause = FIRST_PAUSE_SECONDS if moved else min(2 * queue.pause, LONGEST_PAUSE_SECONDS)
            queue.due = now + queue.pause
            if not queue.waiting and not queue.events:
                del self._queues[peer]

    def next_due(self) -> float | None:
        """When the next attempt of `send_waiting` is due; None when nothing waits."""
        return min((queue.due for queue in self._queues.values()), default=None)

    def _with_weights(self, reply: _Reply) -> _Reply:
        return reply if reply.target is None else _Reply(self._renewed(reply.send, reply.target), None)

    def _is_taken(self, reply: _Reply) -> bool:
        """Whether ZeroMQ accepted the reply, or the peer is gone."""
        send = reply.send
        frames: list[Buffer | zmq.Frame] = [send.to, *self._header_of(send)]
        if reply.places is not None:
            frames[1:] = with_places(to_frames(send.message), reply.places)
        elif send.snapshot is not None:
            frames += self._frames_of(send.snapshot)
        try:
            send_frames(self._socket, frames)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            # ROUTER_MANDATORY reports that the connection is gone; its worker reconnects.
            if error.errno != zmq.EHOSTUNREACH:
                raise
        return True

    def _header_of(self, send: Send) -> Sequence[Buffer | zmq.Frame]:
        """The frames of a message. One to all subscribers is encoded once, and its bytes are theirs in common."""
        if not isinstance(send.message, StatusUpdate | Event | WatchedFrame):
            return to_frames(send.message, send.vector)
        if self._shared is None or self._shared[0] is not send.message:
            self._shared = (send.message, [zmq.Frame(frame, copy=False) for frame in to_frames(send.message)])
        return self._shared[1]

    def _frames_of(self, snapshot: Snapshot) -> list[zmq.Frame]:
        """The snapshot as frames, made once: sending a frame again costs a reference, not a copy."""
        if (frames := self._frames.get(snapshot)) is None:
            is_copied = snapshot.size <= COPIED_BYTES
            frames = [zmq.Frame(chunk, copy=is_copied) for chunk in chunks(snapshot.buffer)]
            self._frames[snapshot] = frames
        return frames
