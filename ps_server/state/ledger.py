"""
The ledger: which pushes are settled, so that each is applied at most once, and how many steps each worker has counted.

The states of a push, and who moves it on:

    waiting    machine/consistency.py keeps it until its turn comes
    judged     state/training_run.py has accepted its gradient, or found a reason to discard it
    settled    applied or discarded, and entered here in the same step: it will never be applied again
    durable    machine/checkpoints.py knows a complete checkpoint with it, and the standby in sync has it too
    released   its worker, told so by a reply, has dropped it from the resend buffer

A server that is restarted goes back to its checkpoint: workers send again every push that is not released, and the
ledger of the checkpoint knows the durable ones.

The key of a push is (worker_id, incarnation, sequence). A worker numbers its pushes 1, 2, 3, … and has only a window of
them unsettled. So an account is one number, "everything up to here", and a small set of sequences beyond a gap.
admission.py decides which process owns an account.

An account is kept as long as its process may come back: without it its pushes could be applied again. Of many accounts
those that were silent for long are forgotten, and a process that comes back all the same is superseded: no incarnation
is given again.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Literal

from msgspec.structs import replace

from ps_common.protocol.messages import Opened
from ps_common.protocol.names import MOST
from ps_common.protocol.record import Account

Standing = Literal["new", "settled", "outside window"]

MOST_KEPT = 10_000  # accounts whose workers were silent for long
LOOKED_AT = 4  # of these, each time that one more is opened


class Ledger:
    """
    The accounts of the workers that joined the run, by worker id.

    A push and a checkpoint cost the same with a hundred accounts and with a hundred thousand, but for a shallow copy of
    the table at each checkpoint.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.accounts: dict[str, Account] = {}  # changed by `change` and `open` alone; the next to look at first
        self.superseded = 0  # the highest incarnation of a forgotten account
        self._next_number = 0  # above every number that was given
        self._undurable: dict[str, None] = {}  # names of accounts with settled pushes that are not durable

    def change(self, worker_id: str, **fields: Any) -> Account:
        return self._keep(worker_id, replace(self.accounts[worker_id], **fields))

    def open(self, worker_id: str, opened: Opened) -> Account:
        """
        The account of a process that was admitted as this worker. Another process begins a new sequence.

        The worker gets the number that was `opened`, or keeps its own; without both it is the next in order of joining.
        """
        for name in opened.forgotten:
            self._forget(name)
        account, number = self.accounts.get(worker_id), opened.number
        if number is None:
            number = self._next_number if account is None else account.number
        self._next_number = max(self._next_number, _above(number))
        if account is None or account.proof != opened.proof:
            account = Account(opened.incarnation, opened.proof, opened.key, number)
        key, environments = opened.key or account.key, opened.environments
        self._keep(worker_id, replace(account, number=number, key=key, environments=environments, left=False))
        self.settle_below(worker_id, opened.oldest)
        return self.accounts[worker_id]

    def left(self, worker_id: str) -> None:
        """The process of this worker has said GOODBYE: after a restart nobody waits for it."""
        self.change(worker_id, left=True)

    def to_forget(self, may_return: Callable[[str], bool]) -> list[str]:
        """The workers to forget when the next account is opened: of the oldest those that cannot be expected back."""
        looked_at = list(islice(self.accounts, LOOKED_AT if len(self.accounts) >= MOST_KEPT else 0))
        for name in filter(may_return, looked_at):
            self.accounts[name] = self.accounts.pop(name)  # the others are looked at first
        return [name for name in looked_at if not may_return(name)]

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

    def settle_below(self, worker_id: str, oldest: int) -> None:
        """
        Count every push older than `oldest` as settled: the worker will never resend it.

        Those unknown here were refused, or settled after the checkpoint that this server was restored from. Counting
        them closes the gap.
        """
        account = self.accounts[worker_id]
        if account.through < oldest - 1:
            self._settled_to(worker_id, oldest - 1, account.early)

    def judge(self, worker_id: str, sequence: int) -> Standing:
        """Whether this push is new, was settled before, or is beyond the window."""
        account = self.accounts[worker_id]
        if sequence <= account.through or sequence in account.early:
            return "settled"
        return "new" if sequence <= account.through + self.window else "outside window"

    def settle(self, worker_id: str, sequence: int) -> None:
        account = self.accounts[worker_id]
        self._settled_to(worker_id, account.through, account.early | {sequence})

    def record(self) -> dict[str, Account]:
        return self.accounts.copy()

    def restore(self, accounts: Mapping[str, Account], *, superseded: int = 0) -> None:
        """Restore the accounts of a checkpoint: all of them are durable."""
        self.accounts, self.superseded = {}, superseded
        self._next_number = max((_above(account.number) for account in accounts.values()), default=0)
        for name, account in accounts.items():
            self._keep(
                name, account if account.durable == account.through else replace(account, durable=account.through)
            )

    def forget_durable(self) -> None:
        """No checkpoint of this server holds any push."""
        for name in self.accounts:
            self.change(name, durable=0)

    def mark_durable(self, accounts: Mapping[str, Account]) -> None:
        """A checkpoint with these accounts is complete, and the standby in sync has its pushes."""
        for name in list(self._undurable):
            account, saved = self.accounts[name], accounts.get(name)
            if saved is not None and (account.proof, account.incarnation) == (saved.proof, saved.incarnation):
                # A process that was forgotten, and has joined again, has fewer pushes here than the checkpoint.
                self.change(name, durable=max(account.durable, min(saved.through, account.through)))

    def _settled_to(self, worker_id: str, through: int, early: frozenset[int]) -> None:
        """All up to `through` and those in `early` are settled, if it closes a gap even more."""
        while through + 1 in early:
            through += 1
        if early:
            early = frozenset(sequence for sequence in early if sequence > through)
        self.change(worker_id, through=through, early=early)

    def _keep(self, worker_id: str, account: Account) -> Account:
        self.accounts[worker_id] = account
        if account.durable < account.through:
            self._undurable[worker_id] = None
        else:
            self._undurable.pop(worker_id, None)
        return account

    def _forget(self, worker_id: str) -> None:
        if (account := self.accounts.pop(worker_id, None)) is not None:
            self.superseded = max(self.superseded, account.incarnation)
        self._undurable.pop(worker_id, None)


def _above(number: int) -> int:
    """The next number; a worker may have stated any at a shard after the first."""
    return min(number, MOST - 1) + 1
