"""
Which pushes are settled, so that each is applied at most once; and how many steps each worker has told.

A push is known by (worker_id, incarnation, sequence). A worker numbers its pushes 1, 2, 3, … and has only a window of
them unsettled, so an account is one number, "everything up to here", and a small set of what came early. Whose account
it is, admission.py decides.
"""

from typing import Any, Literal

import msgspec

Standing = Literal["new", "settled", "outside window"]


class Account(msgspec.Struct, forbid_unknown_fields=True):
    """One process's pushes. Invariant: every member of `early` is in (through + 1, through + window]."""

    incarnation: int
    proof: str  # of its secret, which nobody can tell from this
    key: str  # that the worker id is bound to; "" where nobody is asked for keys
    number: int  # 0, 1, 2, … in order of joining; the same for each process of a worker id
    through: int = 0  # every push up to here is settled
    early: set[int] = set()  # settled beyond a gap
    durable: int = 0  # `through` at the newest completed checkpoint
    reported: int = 0  # every report up to here is counted
    environments: int = 1
    unplayed: int = 0  # steps of settled pushes, less those of the games that were reported


class Ledger:
    """The accounts of all workers that the run has ever seen, by worker id."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.accounts: dict[str, Account] = {}

    def open(
        self, worker_id: str, incarnation: int, *, proof: str, key: str = "", oldest: int = 1, environments: int = 1
    ) -> Account:
        """The account of a process that was admitted as this worker; another process starts its sequence afresh."""
        account = self.accounts.get(worker_id)
        if account is None or account.proof != proof:
            number = len(self.accounts) if account is None else account.number
            account = self.accounts[worker_id] = Account(incarnation, proof, key, number)
        account.key = key or account.key
        account.environments = environments
        self.forget_before(worker_id, oldest)
        return account

    def lacking(self, worker_id: str, proof: str, *, oldest: int) -> int:
        """How many pushes of a process below `oldest`, which will never be sent again, are not settled here."""
        account = self.accounts.get(worker_id)
        if account is None or account.proof != proof:
            return 0
        early = sum(sequence < oldest for sequence in account.early)
        return max(0, oldest - 1 - account.through - early)

    def forget_before(self, worker_id: str, oldest: int) -> None:
        """
        The worker will never again send a push older than `oldest`.

        Those that this server does not know of are beyond recall: they were refused, or settled by a life of it that
        was not saved. They count as settled, so that no gap stays open for them.
        """
        account = self.accounts[worker_id]
        if account.through < oldest - 1:
            account.through = oldest - 1
            account.early = {sequence for sequence in account.early if sequence > account.through}
            self._close_gap(account)

    def judge(self, worker_id: str, sequence: int) -> Standing:
        """Whether this push is to be looked at or was settled before."""
        account = self.accounts[worker_id]
        if sequence <= account.through or sequence in account.early:
            return "settled"
        return "new" if sequence <= account.through + self.window else "outside window"

    def settle(self, worker_id: str, sequence: int) -> None:
        """This push was applied or discarded, and is not to be looked at again."""
        account = self.accounts[worker_id]
        account.early.add(sequence)
        self._close_gap(account)

    @staticmethod
    def _close_gap(account: Account) -> None:
        while account.through + 1 in account.early:
            account.through += 1
            account.early.remove(account.through)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a checkpoint keeps them."""
        built: dict[str, Any] = msgspec.to_builtins(self.accounts)
        return built

    def restore(self, accounts: dict[str, Any]) -> None:
        """Back to what a checkpoint kept: all of it is durable."""
        self.accounts = msgspec.convert(accounts, dict[str, Account])
        self.mark_durable(accounts)

    def forget_durable(self) -> None:
        """No checkpoint of this server holds any of it."""
        for account in self.accounts.values():
            account.durable = 0

    def mark_durable(self, accounts: dict[str, Any]) -> None:
        """A checkpoint with these accounts (of `to_dict`) is complete."""
        for worker_id, saved in accounts.items():
            account = self.accounts.get(worker_id)
            if account is not None and account.proof == saved["proof"]:
                account.durable = max(account.durable, saved["through"])
