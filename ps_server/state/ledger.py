"""
The ledger: which pushes are settled, so that each is applied at most once, and how many steps each worker has counted.

The states of a push, and who moves it on:

    waiting    machine/consistency.py keeps it until its turn comes
    judged     state/training_run.py has found its gradient sound, or a reason to discard it
    settled    applied or discarded, and entered here in the same step: it will never be applied again
    durable    machine/checkpoints.py knows a complete checkpoint with it, and the standby in sync has it too
    released   its worker, told so by a reply, has dropped it from the resend buffer

A server that is restarted goes back to its checkpoint: workers send again every push that is not released, and the
ledger of the checkpoint knows the durable ones.

The key of a push is (worker_id, incarnation, sequence). A worker numbers its pushes 1, 2, 3, … and has only a window of
them unsettled. So an account is one number, "everything up to here", and a small set of sequences beyond a gap.
admission.py decides which process owns an account.

An account of which a push was applied is kept as long as its process may come back: without it the push could be
applied again. Of many such accounts those that were silent for long are forgotten, and a process that comes back all
the same is superseded: no incarnation is given again. A name alone costs nothing, so of the others the latest are kept.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from msgspec.structs import replace

from ps_common.protocol.messages import Opened
from ps_common.protocol.names import MOST
from ps_common.protocol.record import Account

Standing = Literal["new", "settled", "outside window"]

MOST_IDLE = 1000  # accounts without an applied push, whose workers are gone
MOST_KEPT = 10_000  # accounts with an applied push, whose workers were silent for long
LOOKED_AT = 4  # of either, each time that one more is opened


class Ledger:
    """
    The accounts of the workers that joined the run, by worker id.

    A push, a checkpoint and a look at the invariants cost the same with a hundred accounts and with a hundred thousand,
    but for a shallow copy of the table at each checkpoint.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.accounts: dict[str, Account] = {}  # changed by `change` and `open` alone
        self.superseded = 0  # the highest incarnation of a forgotten account with an applied push
        self._next_number = 0  # above every number that was given
        self._idle: dict[str, None] = {}  # names of accounts without an applied push, the oldest first
        self._kept: dict[str, None] = {}  # names of the others
        self._undurable: dict[str, None] = {}  # names of accounts with settled pushes that are not durable
        self._changed: set[str] = set()  # names of accounts that changed since they were found right

    @property
    def kept(self) -> int:
        """How many accounts have an applied push."""
        return len(self._kept)

    def change(self, worker_id: str, **fields: Any) -> Account:
        """Replace fields of an account."""
        return self._keep(worker_id, replace(self.accounts[worker_id], **fields))

    def open(self, worker_id: str, opened: Opened) -> Account:
        """
        The account of a process that was admitted as this worker. Another process begins a new sequence.

        The worker gets the number that was `opened`, or keeps its own; without both it is the next in order of joining.
        """
        for name in opened.forgotten:
            self._forget(name)
        account, number = self.accounts.get(worker_id), opened.number
        if account is None:
            self._idle[worker_id] = None
        if number is None:
            number = self._next_number if account is None else account.number
        self._next_number = max(self._next_number, _above(number))
        if account is None or account.proof != opened.proof:
            applied = account is not None and account.applied
            account = Account(opened.incarnation, opened.proof, opened.key, number, applied=applied)
        key, environments = opened.key or account.key, opened.environments
        self._keep(worker_id, replace(account, number=number, key=key, environments=environments, left=False))
        self.settle_below(worker_id, opened.oldest)
        return self.accounts[worker_id]

    def applied(self, worker_id: str) -> None:
        """A push of this worker is applied."""
        if not self.accounts[worker_id].applied:
            self.change(worker_id, applied=True)
        if worker_id in self._idle:
            del self._idle[worker_id]
            self._kept[worker_id] = None

    def left(self, worker_id: str) -> None:
        """The process of this worker has said GOODBYE: after a restart nobody waits for it."""
        self.change(worker_id, left=True)

    def to_forget(
        self, may_live: Callable[[str], bool], may_return: Callable[[str], bool]
    ) -> tuple[list[str], list[str]]:
        """
        The workers to forget when the next account is opened: of the oldest without an applied push those that are not
        alive, and of the oldest others those that cannot be expected back.
        """
        return _to_forget(self._idle, MOST_IDLE, may_live), _to_forget(self._kept, MOST_KEPT, may_return)

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
        """This push was applied or discarded."""
        account = self.accounts[worker_id]
        self._settled_to(worker_id, account.through, account.early | {sequence})

    def violations(self) -> Iterator[str]:
        """The violations by worker, of accounts that have changed since they were found right."""
        for worker in list(self._changed):
            found = list(_violations_of(worker, self.accounts[worker]))
            yield from found
            if not found:
                self._changed.remove(worker)
        if lost := [name for name in self._idle if name not in self.accounts]:
            yield f"{min(lost)}: it has no account, and counts among those without a push"
        if len(self._idle) + len(self._kept) != len(self.accounts):
            yield f"{len(self._idle)} accounts without and {len(self._kept)} with a push are {len(self.accounts)}"

    def record(self) -> dict[str, Account]:
        """The accounts as a checkpoint keeps them."""
        return self.accounts.copy()

    def restore(self, accounts: Mapping[str, Account], *, superseded: int = 0) -> None:
        """Restore the accounts of a checkpoint: all of them are durable."""
        self.accounts, self.superseded = {}, superseded
        self._idle = {name: None for name, account in accounts.items() if not account.applied}
        self._kept = {name: None for name in accounts if name not in self._idle}
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
        self._changed.add(worker_id)
        if account.durable < account.through:
            self._undurable[worker_id] = None
        else:
            self._undurable.pop(worker_id, None)
        return account

    def _forget(self, worker_id: str) -> None:
        account = self.accounts.pop(worker_id, None)
        if account is not None and worker_id in self._kept:
            self.superseded = max(self.superseded, account.incarnation)
        self._changed.discard(worker_id)
        for names in (self._idle, self._kept, self._undurable):
            names.pop(worker_id, None)


def _to_forget(names: dict[str, None], most: int, is_needed: Callable[[str], bool]) -> list[str]:
    """Of the oldest names those that are not needed, where there are as many as `most`."""
    looked_at = list(islice(names, LOOKED_AT if len(names) >= most else 0))
    for name in filter(is_needed, looked_at):
        names[name] = names.pop(name)  # the others are looked at first
    return [name for name in looked_at if not is_needed(name)]


def _violations_of(worker: str, account: Account) -> Iterator[str]:
    if account.durable > account.through:
        yield f"{worker}: {account.durable} of its pushes are durable, and {account.through} are settled"
    if account.early and min(account.early) <= account.through + 1:
        yield f"{worker}: all up to {account.through} are settled, and {min(account.early)} is beyond a gap"


def _above(number: int) -> int:
    """The next number; a worker may have stated any at a shard after the first."""
    return min(number, MOST - 1) + 1
