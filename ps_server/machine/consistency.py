"""
The consistency gate: when each push is settled, by the consistency rule of the run.

async   at once: Mnih et al. 2016
ssp     as soon as its worker is then at most `slack` pushes ahead of the slowest: Ho et al. 2013, stale synchronous
        parallel
sync    in rounds of one push from each worker, always the next of its sequence: a push that the network lost is not
        replaced by a later one

Workers whose lease has ended, or that left, keep no push of another waiting.
"""

from collections.abc import Callable, Sequence

import msgspec

from ps_common.protocol.messages import Push
from ps_common.protocol.wire import Buffer
from ps_common.settings.run_spec import Consistency
from ps_server.machine.membership import Member, Membership
from ps_server.state.effects import PeerId


class WaitingPush(msgspec.Struct, frozen=True, eq=False):
    """A push that was received and is not settled, and the connection to which its reply goes."""

    member: Member
    peer: PeerId
    message: Push
    vector: Sequence[Buffer]
    size: int  # the bytes of the vector


class ConsistencyGate:
    """
    The pushes that wait.

    Invariants: a push waits once, however often it was sent; those of one worker are settled in order of sequence. All
    waiting pushes but one of each living worker are within the budget.

    A push that arrives is judged without a look at the pushes that wait and at the workers, however many they are, but
    for the one that others have waited for. `look_again` looks at all: what happens to a worker counts then.
    """

    def __init__(self, settings: Consistency, through: Callable[[str], int], *, budget_bytes: int) -> None:
        """`through` maps a worker id to the sequence up to which all its pushes are settled."""
        self._budget_bytes = budget_bytes
        self._settings = settings
        self._through = through
        self._waiting: dict[str, dict[int, WaitingPush]] = {}  # by worker id and sequence; no inner dictionary is empty
        self.waiting_bytes = 0  # the sum over all waiting vectors
        self._awaited = ""  # a worker whose next push is needed before any other is settled; "" if that is not known
        self._fresh: dict[str, None] = {}  # workers whose waiting pushes have changed since they were judged
        self._clocks: dict[str, int] = {}  # ssp: pushes settled since it joined, plus the slowest clock then
        self._slowest: set[str] = set()  # workers with the least clock
        self._least = 0  # that clock
        self._began = settings.quorum == 0  # whether the quorum was reached once

    def admit(self, push: WaitingPush, *, is_alive: Callable[[str], bool]) -> bool:
        """
        Keep a push that is not settled; a retry replaces the push that it repeats.

        False when the budget is spent: the worker sends the push again when older ones are settled. The push that is
        settled next is always kept. When memory is short, pushes of dead workers are dropped first: a worker that
        comes back sends them again.
        """
        worker = push.member.worker_id
        if self.waiting_bytes + push.size > self._budget_bytes:
            for one in [one for one in self._waiting if not is_alive(one)]:
                self.drop(one)
            is_too_much = self.waiting_bytes + push.size > self._budget_bytes
            if is_too_much and not self._is_next(worker, push.message.sequence):
                return False
        if push.message.sequence in self._waiting.get(worker, {}):
            self._remove(worker, push.message.sequence)
        self._waiting.setdefault(worker, {})[push.message.sequence] = push
        self.waiting_bytes += push.size
        self._fresh[worker] = None
        return True

    def has_waiting(self, worker_id: str) -> bool:
        return worker_id in self._waiting

    def waits(self, worker_id: str) -> bool:
        """Whether a push of this worker waits, and needs no other push of it to be settled."""
        waiting = self._waiting.get(worker_id)
        return waiting is not None and (self._settings.rule != "sync" or self._through(worker_id) + 1 in waiting)

    def pushes_of(self, worker_id: str) -> list[Push]:
        return [push.message for push in self._waiting.get(worker_id, {}).values()]

    def drop(self, worker_id: str) -> None:
        """The worker has joined again, and sends again what is not settled."""
        for sequence in list(self._waiting.get(worker_id, ())):
            self._remove(worker_id, sequence)

    def give_up(self, worker_id: str, oldest: int) -> None:
        """The worker will send no push before `oldest` again, and wants none of them settled."""
        for sequence in [one for one in self._waiting.get(worker_id, ()) if one < oldest]:
            self._remove(worker_id, sequence)

    def drop_all(self) -> None:
        """The run is over."""
        for worker_id in list(self._waiting):
            self.drop(worker_id)

    def look_again(self) -> None:
        """Time has passed, or a worker has come, gone, or stopped: whoever waited may have nobody to wait for."""
        self._slowest.clear()

    def next(self, members: Membership) -> list[WaitingPush]:
        """The pushes to settle now, as one update, in order of their workers' numbers; [] when all must wait."""
        if not self._waiting or (members.may_push(self._awaited) and not self.waits(self._awaited)):
            return []
        self._awaited = ""
        self._began = self._began or members.is_quorum(self._settings.quorum)
        if not self._began:
            return []
        if self._settings.rule == "async":
            return [self._take(next(iter(self._waiting)))]
        if self._settings.rule == "ssp":
            return self._next_of_ssp(members)
        return self._next_of_sync(members)

    def _next_of_sync(self, members: Membership) -> list[WaitingPush]:
        for member in members.who_may_push():
            if not self.waits(member.worker_id):
                self._awaited = member.worker_id  # the last one, which joined last
        if self._awaited:
            return []
        # A dead worker's push that is not the next of its sequence is dropped: a worker that comes back sends it again.
        for worker in [one for one in self._waiting if not self.waits(one)]:
            self.drop(worker)
        together = [self._take(worker) for worker in list(self._waiting)]
        return sorted(together, key=lambda push: push.member.number)

    def _next_of_ssp(self, members: Membership) -> list[WaitingPush]:
        if not self._slowest:
            living = [member.worker_id for member in members.who_may_push()]
            clock = min((self._clocks[worker] for worker in living if worker in self._clocks), default=0)
            self._clocks = {worker: self._clocks.get(worker, clock) for worker in living}
            self._least = min(self._clocks.values(), default=0)
            self._slowest = {worker for worker, clock in self._clocks.items() if clock == self._least}
            self._fresh = dict.fromkeys(self._waiting)
        while self._fresh:
            worker = next(iter(self._fresh))
            if worker in self._waiting:
                if not members.may_push(worker):
                    return [self._take(worker)]
                clock = self._clocks.setdefault(worker, self._least)
                if clock < self._least + self._settings.slack:
                    self._clocks[worker] = clock + 1
                    self._slowest.discard(worker)
                    return [self._take(worker)]
            del self._fresh[worker]  # until the slowest has moved
        return []

    def _is_next(self, worker_id: str, sequence: int) -> bool:
        """Whether this push is kept already, or no other push of its worker can be settled before it."""
        waiting = self._waiting.get(worker_id, {})
        in_order = sequence == self._through(worker_id) + 1
        return sequence in waiting or in_order or (not waiting and self._settings.rule != "sync")

    def _take(self, worker_id: str) -> WaitingPush:
        return self._remove(worker_id, min(self._waiting[worker_id]))

    def _remove(self, worker_id: str, sequence: int) -> WaitingPush:
        pushes = self._waiting[worker_id]
        push = pushes.pop(sequence)
        if not pushes:
            del self._waiting[worker_id]
        self.waiting_bytes -= push.size
        self._fresh[worker_id] = None
        return push
