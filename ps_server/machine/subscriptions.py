"""
The subscribers of a server: each has a lease, and is sent the status once a second and events as they happen.

An event is a line of the log, for a person who watches the run; the newest are kept for whoever subscribes later.
Nothing is computed while nobody subscribes. The shell's send queue drops messages that a slow subscriber does not read.

A watcher has a lease, too: it is sent the frames of one worker's game. Replies tell that worker that it is watched.
"""

from collections import deque
from collections.abc import Callable

from ps_common.protocol import messages
from ps_common.protocol.names import as_text
from ps_common.protocol.status import Status
from ps_server.machine.membership import Member
from ps_server.state.effects import Effect, LogLine, PeerId, RecordEvent, Send
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun

SUBSCRIPTION_SECONDS = 10.0  # the lease
STATUS_SECONDS = 1.0  # between two statuses
MOST_SUBSCRIBERS = MOST_WATCHERS = 100
MOST_EVENTS = 200  # kept
LONGEST_EVENT = 1000  # characters


class Subscriptions:
    """The subscribers and the events of one server in one epoch. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._number = 0  # the number of the newest event
        self._events: deque[messages.Event] = deque(maxlen=MOST_EVENTS)
        self._until: dict[PeerId, float] = {}  # the end of each lease
        self._status_due = 0.0

    def subscribe(self, peer: PeerId, subscribe: messages.Subscribe, *, epoch: int, now: float) -> list[Effect]:
        """Begin or renew a lease; a new subscriber is sent the events that it lacks. Raises Denied."""
        self._end_leases(now=now)
        is_new = peer not in self._until
        if is_new and len(self._until) >= MOST_SUBSCRIBERS:
            raise Denied("too_many_subscribers", f"this server has {MOST_SUBSCRIBERS} subscribers, the most it takes")
        self._until[peer] = now + SUBSCRIPTION_SECONDS
        subscribed = messages.Subscribed(
            request=subscribe.request, lease_seconds=SUBSCRIPTION_SECONDS, event=self._number, epoch=epoch
        )
        after = subscribe.events_after if subscribe.epoch in (0, epoch) else 0
        lacking = [event for event in self._events if is_new and event.number > after]
        return [Send(peer, subscribed), *(Send(peer, event) for event in lacking)]

    def add(self, line: LogLine, run: TrainingRun | None, *, now: float) -> list[Effect]:
        """A line of the log becomes an event, for the run's records and every subscriber."""
        kind: messages.EventKind = line.kind or ("warning" if line.warning else "note")
        self._number += 1
        event = messages.Event(
            number=self._number,
            kind=kind,
            text=as_text(line.text, LONGEST_EVENT),
            worker_id=as_text(line.worker_id),
            global_steps=run.progress.global_steps if run else 0,
            minutes=run.progress.minutes(now=now) if run else 0.0,
        )
        self._events.append(event)
        self._end_leases(now=now)
        return [RecordEvent(event, run.epoch if run else 0), *(Send(peer, event) for peer in self._until)]

    def tick(self, status: Callable[..., Status], *, now: float) -> list[Effect]:
        """Time has passed. `status`, which takes `now`, is called only when a subscriber is to be sent it."""
        self._end_leases(now=now)
        if not self._until or now < self._status_due:
            return []
        self._status_due += STATUS_SECONDS
        if self._status_due <= now:
            self._status_due = now + STATUS_SECONDS
        update = messages.StatusUpdate(status=status(now=now))
        return [Send(peer, update) for peer in self._until]

    def _end_leases(self, *, now: float) -> None:
        for peer in [peer for peer, until in self._until.items() if now > until]:
            del self._until[peer]


class Watchers:
    """The peers that watch a game. Each watches one worker; a worker's own watchers are in its Member."""

    def __init__(self) -> None:
        self._watching: dict[PeerId, Member] = {}

    def watch(self, peer: PeerId, watch: messages.Watch, member: Member | None, *, now: float) -> list[Effect]:
        """Begin or renew a lease; `member` is the worker, if it is alive. Raises Denied."""
        self._end_leases(now=now)
        if member is None:
            raise Denied("no_such_worker", f"no worker {watch.worker_id} is alive; the status names those that are")
        if peer not in self._watching and len(self._watching) >= MOST_WATCHERS:
            raise Denied("too_many_subscribers", f"{MOST_WATCHERS} peers watch games of this server, the most it takes")
        if peer in self._watching:
            self._watching[peer].watchers.pop(peer, None)
        self._watching[peer] = member
        member.watchers[peer] = now + SUBSCRIPTION_SECONDS
        return [Send(peer, messages.Watching(request=watch.request, lease_seconds=SUBSCRIPTION_SECONDS))]

    def _end_leases(self, *, now: float) -> None:
        for peer, member in list(self._watching.items()):
            if now > member.watchers[peer]:
                del self._watching[peer], member.watchers[peer]
