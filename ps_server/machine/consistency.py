"""
The consistency gate: when each push is settled, by the consistency rule of the run.

async   at once: Mnih et al. 2016
ssp     as soon as its worker is then at most `slack` pushes ahead of the slowest: Ho et al. 2013, stale synchronous
        parallel
paced   as soon as no gradient that is still to come is then more than `slack` versions late; gradients that would be
        late all the same are one update
sync    in rounds of one push from each worker, always the next of its sequence: a push that the network lost is not
        replaced by a later one

Workers whose lease has ended, or that left, keep no push waiting. A waiting push is not settled: it is in no
checkpoint, its worker keeps it in the resend buffer, and sends it again to a restarted server.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.protocol.messages import Push
from common.protocol.tensors import vector_bytes
from common.protocol.wire import Buffer
from common.settings.run_spec import Consistency
from ps_server.machine.membership import Member, PeerId


@dataclass(frozen=True, eq=False)
class WaitingPush:
    """A push that was received and is not settled, and the connection to which its reply goes."""

    member: Member
    peer: PeerId
    message: Push
    vector: Sequence[Buffer]

    @property
    def size(self) -> int:
        """The bytes of the vector."""
        return vector_bytes(self.vector)


class ConsistencyGate:
    """
    The pushes that wait.

    Invariants: a push waits once, however often it was sent; those of one worker are settled in order of sequence. All
    waiting pushes but one of each living worker are within the budget.
    """

    def __init__(self, settings: Consistency, through: Callable[[str], int], *, budget_bytes: int) -> None:
        """`through` maps a worker id to the sequence up to which all its pushes are settled."""
        self._budget_bytes = budget_bytes
        self._settings = settings
        self._through = through
        self._waiting: dict[str, dict[int, WaitingPush]] = {}  # by worker id and sequence; no inner dictionary is empty
        self._clocks: dict[str, int] = {}  # pushes settled since it joined, plus the slowest clock then; of the living
        self._has: dict[str, int] = {}  # the version that each of the living computes on, or an older one
        self._began = settings.quorum == 0  # whether the quorum was reached once

    @property
    def waiting_bytes(self) -> int:
        """The bytes of all waiting vectors."""
        return sum(push.size for pushes in self._waiting.values() for push in pushes.values())

    def admit(self, push: WaitingPush, *, is_alive: Callable[[str], bool]) -> bool:
        """
        Keep a push that is not settled; a retry replaces the push that it repeats.

        False when the budget is spent: the worker sends the push again when older ones are settled. The push that is
        settled next is always kept. When memory is short, pushes of dead workers are dropped first: a worker that
        comes back sends them again.
        """
        worker = push.member.worker_id
        if self.waiting_bytes + push.size > self._budget_bytes:
            self._waiting = {one: pushes for one, pushes in self._waiting.items() if is_alive(one)}
            is_too_much = self.waiting_bytes + push.size > self._budget_bytes
            if is_too_much and not self._is_next(worker, push.message.sequence):
                return False
        self._waiting.setdefault(worker, {})[push.message.sequence] = push
        return True

    def pulled(self, worker_id: str, version: int) -> None:
        """A worker pulls this version. A second pull may be a retry, so that the first counts."""
        self._has.setdefault(worker_id, version)

    def settled(self, push: WaitingPush, *, version: int) -> None:
        """A push was applied or discarded; its reply brings this version if it asks for weights."""
        if push.message.weight_codec is not None:
            self._has[push.member.worker_id] = version

    def has_waiting(self, worker_id: str) -> bool:
        """Whether a push of this worker waits."""
        return worker_id in self._waiting

    def waits(self, worker_id: str) -> bool:
        """Whether a push of this worker waits, and needs no other push of it to be settled."""
        waiting = self._waiting.get(worker_id)
        return waiting is not None and (self._settings.rule != "sync" or self._through(worker_id) + 1 in waiting)

    def steps_of(self, worker_id: str) -> int:
        """Environment steps of this worker's waiting pushes."""
        return sum(push.message.steps for push in self._waiting.get(worker_id, {}).values())

    def drop(self, worker_id: str) -> None:
        """The worker joins anew, and sends again what is not settled."""
        self._waiting.pop(worker_id, None)

    def drop_all(self) -> None:
        """The run is over."""
        self._waiting.clear()

    def next(self, alive: Callable[[], Sequence[Member]], *, epoch: int, version: int) -> list[WaitingPush]:
        """
        The pushes to settle now, as one update, in order of their workers' numbers; [] when all must wait.

        `version` of `epoch` is that of the weights.
        """
        if not self._waiting:
            return []
        self._began = self._began or len(alive()) >= self._settings.quorum
        if not self._began:
            return []
        if self._settings.rule == "async":
            return [self._take(next(iter(self._waiting)))]
        living = {member.worker_id for member in alive()}
        if self._settings.rule == "ssp":
            return self._next_of_ssp(living)
        if self._settings.rule == "paced":
            return self._next_of_paced(living, epoch, version)
        return self._next_of_sync(living)

    def _next_of_sync(self, living: set[str]) -> list[WaitingPush]:
        ready = {worker for worker in self._waiting if self.waits(worker)}
        if not living <= ready:
            return []
        # A dead worker's push that is not the next of its sequence is dropped: a worker that comes back sends it again.
        # So is a push that its worker has given up.
        self._waiting = {worker: self._from(self._through(worker) + 1, self._waiting[worker]) for worker in ready}
        return self._together(ready)

    def _next_of_ssp(self, living: set[str]) -> list[WaitingPush]:
        slowest = min((clock for worker, clock in self._clocks.items() if worker in living), default=0)
        self._clocks = {worker: self._clocks.get(worker, slowest) for worker in living}
        for worker in self._waiting:
            if worker not in living:
                return [self._take(worker)]
            if self._clocks[worker] < slowest + self._settings.slack:
                self._clocks[worker] += 1
                return [self._take(worker)]
        return []

    def _next_of_paced(self, living: set[str], epoch: int, version: int) -> list[WaitingPush]:
        self._has = {worker: has for worker, has in self._has.items() if worker in living}
        computed_on = self._has | {worker: self._computed_on(worker, epoch, version) for worker in self._waiting}
        # After one more update these would be more than `slack` late: so they are that update.
        late = {worker for worker, base in computed_on.items() if version + 1 - base > self._settings.slack}
        due = late or {min(self._waiting, key=computed_on.__getitem__)}
        return self._together(due) if due <= self._waiting.keys() else []

    def _computed_on(self, worker_id: str, epoch: int, version: int) -> int:
        oldest = self._oldest(worker_id).message
        return oldest.computed_on if oldest.epoch == epoch else version  # a push of another epoch counts as fresh

    def _is_next(self, worker_id: str, sequence: int) -> bool:
        """Whether this push is kept already, or no other push of its worker can be settled before it."""
        waiting = self._waiting.get(worker_id, {})
        in_order = sequence == self._through(worker_id) + 1
        return sequence in waiting or in_order or (not waiting and self._settings.rule != "sync")

    def _together(self, workers: set[str]) -> list[WaitingPush]:
        return sorted((self._take(worker) for worker in workers), key=lambda push: push.member.number)

    def _oldest(self, worker_id: str) -> WaitingPush:
        waiting = self._waiting[worker_id]
        return waiting[min(waiting)]

    @staticmethod
    def _from(sequence: int, pushes: dict[int, WaitingPush]) -> dict[int, WaitingPush]:
        return {one: push for one, push in pushes.items() if one >= sequence}

    def _take(self, worker_id: str) -> WaitingPush:
        """Remove the oldest push of a worker."""
        waiting = self._waiting[worker_id]
        oldest = waiting.pop(min(waiting))
        if not waiting:
            del self._waiting[worker_id]
        return oldest
