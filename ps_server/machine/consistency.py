"""
The consistency gate: when each push is settled, by the consistency rule of the run.

async   at once: Mnih et al. 2016
ssp     as soon as its worker is then at most `slack` pushes ahead of the slowest: Ho et al. 2013, stale synchronous
        parallel
paced   as soon as no gradient that is still to come is then more than `slack` versions late; gradients that would be
        late all the same are one update
sync    in rounds of one push from each worker, always the next of its sequence: a push that the network lost is not
        replaced by a later one

Workers whose lease has ended, or that left, keep no push of another waiting.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from ps_common.protocol.messages import Push
from ps_common.protocol.record import Account
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

    While the push that all others wait for has not come, a push that arrives costs the same with ten workers and with
    a thousand.
    """

    def __init__(self, settings: Consistency, through: Callable[[str], int], *, budget_bytes: int) -> None:
        """`through` maps a worker id to the sequence up to which all its pushes are settled."""
        self._budget_bytes = budget_bytes
        self._settings = settings
        self._through = through
        self._waiting: dict[str, dict[int, WaitingPush]] = {}  # by worker id and sequence; no inner dictionary is empty
        self.waiting_bytes = 0  # the sum over all waiting vectors
        self._awaited = ""  # a worker whose next push is needed before any other is settled; "" if that is not known
        self._slowest = ""  # under ssp a worker with the least clock; "" if that is not known
        self._clocks: dict[str, int] = {}  # pushes settled since it joined, plus the slowest clock then; of the living
        self._has: dict[str, int] = {}  # the version that each of the living computes on, or an older one
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
        return True

    def pulled(self, worker_id: str, version: int) -> None:
        """A worker pulls this version. A second pull may be a retry, so that the first counts."""
        self._has.setdefault(worker_id, version)

    def settled(self, push: WaitingPush, *, epoch: int, version: int) -> None:
        """A push was applied or discarded; its reply brings this version of `epoch` if it asks for weights."""
        worker, message = push.member.worker_id, push.message
        if message.weight_codec is not None:
            self._has[worker] = version
        elif worker in self._has and message.epoch == epoch:  # so it has pulled what it computed on
            self._has[worker] = max(self._has[worker], min(message.computed_on, version))

    def has_waiting(self, worker_id: str) -> bool:
        """Whether a push of this worker waits."""
        return worker_id in self._waiting

    def waits(self, worker_id: str) -> bool:
        """Whether a push of this worker waits, and needs no other push of it to be settled."""
        waiting = self._waiting.get(worker_id)
        return waiting is not None and (self._settings.rule != "sync" or self._through(worker_id) + 1 in waiting)

    def pushes_of(self, worker_id: str) -> list[Push]:
        """This worker's waiting pushes."""
        return [push.message for push in self._waiting.get(worker_id, {}).values()]

    def drop(self, worker_id: str) -> None:
        """The worker joins anew, and sends again what is not settled."""
        for sequence in list(self._waiting.get(worker_id, ())):
            self._remove(worker_id, sequence)

    def forget(self, worker_id: str) -> None:
        """The worker has no account any more."""
        self.drop(worker_id)
        self._has.pop(worker_id, None)

    def give_up(self, worker_id: str, oldest: int) -> None:
        """The worker will send no push before `oldest` again, and wants none of them settled."""
        for sequence in [one for one in self._waiting.get(worker_id, ()) if one < oldest]:
            self._remove(worker_id, sequence)

    def drop_all(self) -> None:
        """The run is over."""
        self._waiting.clear()
        self.waiting_bytes = 0

    def next(self, members: Membership, *, epoch: int, version: int) -> list[WaitingPush]:
        """
        The pushes to settle now, as one update, in order of their workers' numbers; [] when all must wait.

        `version` of `epoch` is that of the weights.
        """
        if not self._waiting or (members.is_moving(self._awaited) and not self.waits(self._awaited)):
            return []
        self._awaited = ""
        self._began = self._began or members.is_quorum(self._settings.quorum)
        if not self._began:
            return []
        if self._settings.rule == "async":
            return [self._take(next(iter(self._waiting)))]
        if self._settings.rule == "ssp":
            return self._next_of_ssp(members)
        if self._settings.rule == "paced":
            return self._next_of_paced(members, epoch, version)
        return self._next_of_sync(members)

    def violations(self, accounts: Mapping[str, Account], *, window: int) -> Iterator[str]:
        """The violations by worker; a push may wait as far as the window beyond the last that is settled."""
        waiting_bytes = 0
        for worker, pushes in self._waiting.items():
            waiting_bytes += sum(push.size for push in pushes.values())
            account = accounts.get(worker)
            if account is None:
                yield f"{worker}: pushes of it wait, and it has no account"
            elif not account.through < min(pushes, default=0) <= max(pushes, default=0) <= account.through + window:
                yield f"{worker}: pushes {sorted(pushes)} wait, and those up to {account.through} are settled"
        if waiting_bytes != self.waiting_bytes:
            yield f"{self.waiting_bytes} bytes count as waiting, and {waiting_bytes} do"

    def _next_of_sync(self, members: Membership) -> list[WaitingPush]:
        for member in members.moving():
            if not self.waits(member.worker_id):
                self._awaited = member.worker_id  # the last one, which joined last
        if self._awaited:
            return []
        # A dead worker's push that is not the next of its sequence is dropped: a worker that comes back sends it again.
        for worker in [one for one in self._waiting if not self.waits(one)]:
            self.drop(worker)
        return self._together(set(self._waiting))

    def _next_of_ssp(self, members: Membership) -> list[WaitingPush]:
        if not members.is_moving(self._slowest):
            living = [member.worker_id for member in reversed(members.moving())]
            clock = min((self._clocks[worker] for worker in living if worker in self._clocks), default=0)
            self._clocks = {worker: self._clocks.get(worker, clock) for worker in living}
            self._slowest = min(living, key=self._clocks.__getitem__, default="")
        slowest = self._clocks.get(self._slowest, 0)
        for worker in self._waiting:
            if not members.is_moving(worker):
                return [self._take(worker)]
            clock = self._clocks.setdefault(worker, slowest)
            if clock < slowest + self._settings.slack:
                self._clocks[worker] = clock + 1
                self._slowest = "" if worker == self._slowest else self._slowest
                return [self._take(worker)]
        return []

    def _next_of_paced(self, members: Membership, epoch: int, version: int) -> list[WaitingPush]:
        living = {member.worker_id for member in members.moving()}
        self._has = {worker: has for worker, has in self._has.items() if worker in living}
        computed_on = self._has | {worker: self._computed_on(worker, epoch, version) for worker in self._waiting}
        # After one more update these would be more than `slack` late: so they are that update.
        late = {worker for worker, base in computed_on.items() if version + 1 - base > self._settings.slack}
        self._awaited = max(late - self._waiting.keys(), default="")
        if self._awaited:
            return []
        return self._together(late or {min(self._waiting, key=computed_on.__getitem__)})

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

    def _take(self, worker_id: str) -> WaitingPush:
        """Remove the oldest push of a worker."""
        return self._remove(worker_id, min(self._waiting[worker_id]))

    def _remove(self, worker_id: str, sequence: int) -> WaitingPush:
        pushes = self._waiting[worker_id]
        push = pushes.pop(sequence)
        if not pushes:
            del self._waiting[worker_id]
        self.waiting_bytes -= push.size
        return push
