"""
The ledger: which pushes are settled, so that each is applied at most once, and how many steps each worker has counted.

The states of a push, and who moves it on:

    waiting    machine/consistency.py keeps it until its turn comes
    judged     state/training_run.py has found its gradient sound, or a reason to discard it
    settled    applied or discarded, and entered here in the same step: it will never be applied again
    durable    machine/checkpoint_schedule.py knows a complete checkpoint with it, and the standby in sync has it too
    released   its worker, told so by a reply, has dropped it from the resend buffer

A server that is restarted goes back to its checkpoint: workers send again every push that is not released, and the
ledger of the checkpoint knows the durable ones.

The key of a push is (worker_id, incarnation, sequence). A worker numbers its pushes 1, 2, 3, … and has only a window of
them unsettled. So an account is one number, "everything up to here", and a small set of sequences beyond a gap.
admission.py decides which process owns an account.

An account is for good once a push of it was applied: without it the push could be applied again. A name alone costs
nothing, so of the others the latest are kept.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Literal

from ps_common.protocol.messages import Opened
from ps_common.protocol.names import MOST
from ps_common.protocol.record import Account

Standing = Literal["new", "settled", "outside window"]

MOST_IDLE = 1000  # accounts without an applied push, whose workers are gone
LOOKED_AT = 4  # of them, each time that one more is opened


class Ledger:
    """The accounts of the workers that joined the run, by worker id."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.accounts: dict[str, Account] = {}
        self._next_number = 0  # above every number that was given
        self._idle: dict[str, None] = {}  # names of accounts without an applied push, the oldest first

    @property
    def kept(self) -> int:
        """How many accounts are for good."""
        return len(self.accounts) - len(self._idle)

    def open(self, worker_id: str, opened: Opened) -> Account:
        """
        The account of a process that was admitted as this worker. Another process begins a new sequence.

        The worker gets the number that was `opened`, or keeps its own; without both it is the next in order of joining.
        """
        for name in opened.forgotten:
            self.accounts.pop(name, None)
            self._idle.pop(name, None)
        account, number = self.accounts.get(worker_id), opened.number
        if account is None:
            self._idle[worker_id] = None
        if number is None:
            number = self._next_number if account is None else account.number
        self._next_number = max(self._next_number, _above(number))
        if account is None or account.proof != opened.proof:
            applied = account is not None and account.applied
            account = Account(opened.incarnation, opened.proof, opened.key, number, applied=applied)
            self.accounts[worker_id] = account
        account.left = False
        account.number = number
        account.key = opened.key or account.key
        account.environments = opened.environments
        self.forget_before(worker_id, opened.oldest)
        return account

    def applied(self, worker_id: str) -> None:
        """A push of this worker is applied."""
        self.accounts[worker_id].applied = True
        self._idle.pop(worker_id, None)

    def left(self, worker_id: str) -> None:
        """The process of this worker has said GOODBYE: after a restart nobody waits for it."""
        self.accounts[worker_id].left = True

    def to_forget(self, is_needed: Callable[[str], bool]) -> tuple[str, ...]:
        """The workers to forget when the next account is opened: those of the oldest idle ones that are not needed."""
        looked_at = list(islice(self._idle, LOOKED_AT if len(self._idle) >= MOST_IDLE else 0))
        for name in filter(is_needed, looked_at):
            self._idle[name] = self._idle.pop(name)  # the others are looked at first
        return tuple(name for name in looked_at if not is_needed(name))

    def lacking(self, worker_id: str, proof: str, *, oldest: int, is_proven: bool) -> int:
        """
        How many pushes of a process are below `oldest`, so never resent, and not settled here.

        Of a process without an account here this is believed if it `is_proven` that a server of the run admitted it.
        """
        account = self.accounts.get(worker_id)
        if account is None or account.proof != proof:
            return oldest - 1 if is_proven else 0
        early = sum(sequence < oldest for sequence in account.early)
        return max(0, oldest - 1 - account.through - early)

    def forget_before(self, worker_id: str, oldest: int) -> None:
        """
        Count every push older than `oldest` as settled: the worker will never resend it.

        Those unknown here were refused, or settled after the checkpoint that this server was restored from. Counting
        them closes the gap.
        """
        account = self.accounts[worker_id]
        if account.through < oldest - 1:
            account.through = oldest - 1
            account.early = {sequence for sequence in account.early if sequence > account.through}
            self._close_gap(account)

    def judge(self, worker_id: str, sequence: int) -> Standing:
        """Whether this push is new, was settled before, or is beyond the window."""
        account = self.accounts[worker_id]
        if sequence <= account.through or sequence in account.early:
            return "settled"
        return "new" if sequence <= account.through + self.window else "outside window"

    def settle(self, worker_id: str, sequence: int) -> None:
        """This push was applied or discarded."""
        account = self.accounts[worker_id]
        account.early.add(sequence)
        self._close_gap(account)

    def violations(self) -> Iterator[str]:
        """The violations by worker."""
        for worker, account in self.accounts.items():
            if account.durable > account.through:
                yield f"{worker}: {account.durable} of its pushes are durable, and {account.through} are settled"
            if account.early and min(account.early) <= account.through + 1:
                yield f"{worker}: all up to {account.through} are settled, and {min(account.early)} is beyond a gap"
        if lost := self._idle.keys() - self.accounts.keys():
            yield f"{min(lost)}: it has no account, and counts among those without a push"

    @staticmethod
    def _close_gap(account: Account) -> None:
        while account.through + 1 in account.early:
            account.through += 1
            account.early.remove(account.through)

    def record(self) -> dict[str, Account]:
        """The accounts as a checkpoint keeps them: they do not change any more."""
        return {worker_id: account.copy() for worker_id, account in self.accounts.items()}

    def restore(self, accounts: Mapping[str, Account]) -> None:
        """Restore the accounts of a checkpoint: all of them are durable."""
        self.accounts = {worker_id: account.copy() for worker_id, account in accounts.items()}
        self._idle = {name: None for name, account in accounts.items() if not account.applied}
        self._next_number = max((_above(account.number) for account in accounts.values()), default=0)
        self.mark_durable(accounts)

    def forget_durable(self) -> None:
        """No checkpoint of this server holds any push."""
        for account in self.accounts.values():
            account.durable = 0

    def mark_durable(self, accounts: Mapping[str, Account]) -> None:
        """A checkpoint with these accounts is complete, and the standby in sync has its pushes."""
        for worker_id, saved in accounts.items():
            account = self.accounts.get(worker_id)
            if account is not None and (account.proof, account.incarnation) == (saved.proof, saved.incarnation):
                # A process that was forgotten, and has joined again, has fewer pushes here than the checkpoint.
                account.durable = max(account.durable, min(saved.through, account.through))


def _above(number: int) -> int:
    """The next number; a worker may have stated any at a shard after the first."""
    return min(number, MOST - 1) + 1
