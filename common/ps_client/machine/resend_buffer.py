"""
Resend buffer: pushes that a server may lose are kept until they are durable, and sent again to a restored server.

A push is kept from the call on. It is *replied* when its first reply has come, *settled* when the present epoch of the
server has applied or discarded it, and *durable* when a completed checkpoint contains it; then it is dropped. The
buffer has a budget of bytes. A push that does not fit waits, unless the server reports that its checkpoints fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from ps_common.protocol.messages import Push
from ps_common.protocol.tensors import vector_bytes
from ps_common.protocol.wire import Buffer

# Above this share of the budget a checkpoint is asked for. Kept pushes take memory: with a half, those of a run of Pong
# were a third of all. The rest of the budget is for pushes until the checkpoint is written.
EARLY_SHARE = 0.1
OVERHEAD_BYTES = 1024  # of a kept push without its vector: objects and table entries


@dataclass
class _Kept:
    """A push and its state. Settled implies replied."""

    message: Push
    vector: Sequence[Buffer]
    size: int
    replied: bool = False
    settled: bool = False  # by the present epoch of the server


class ResendBuffer:
    """
    One worker's pushes that are not durable. With a budget of 0 bytes each is dropped with its reply.

    Invariants: a push without a reply is always kept; the bytes of admitted pushes are within the budget, or are those
    of a single push.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._kept: dict[int, _Kept] = {}  # by sequence, the oldest first
        self._bytes = 0  # of admitted pushes
        self._admitted = 0  # the highest sequence that may be sent
        self._durable = 0
        self._is_full = False
        self._checkpoints_succeed = True

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def oldest(self) -> int | None:
        """The lowest sequence that may still be sent; None when the buffer is empty."""
        return next(iter(self._kept), None)

    @property
    def wants_checkpoint(self) -> bool:
        """Whether the server should write a checkpoint early."""
        return self._is_full or self._bytes > self._budget_bytes * EARLY_SHARE > 0

    def keep(self, push: Push, vector: Sequence[Buffer]) -> None:
        """Add a push; its vector must not change any more."""
        self._kept[push.sequence] = _Kept(push, vector, vector_bytes(vector) + OVERHEAD_BYTES)

    def admit(self, sequence: int) -> bool:
        """Whether this push, the oldest that was not admitted before, fits into the budget and may be sent."""
        if sequence <= self._admitted:
            return True
        size = self._kept[sequence].size
        if not self._checkpoints_succeed:
            self._drop_settled_for(size)
        self._is_full = 0 < self._budget_bytes < self._bytes + size and self._bytes > 0
        if self._is_full:
            return False
        self._admitted = sequence
        self._bytes += size
        return True

    def settled(self, sequence: int) -> bool:
        """The server has applied or discarded this push. Returns whether this is its first reply."""
        kept = self._kept.get(sequence)
        if kept is None:
            return False
        first, kept.replied, kept.settled = not kept.replied, True, True
        if self._budget_bytes == 0:
            self._drop(sequence)
        self._drop_durable()
        return first

    def refused(self, sequence: int) -> bool:
        """The server will never accept this push. Returns whether this is its first reply."""
        kept = self._kept.get(sequence)
        if kept is None:
            return False
        self._drop(sequence)
        return not kept.replied

    def durable_through(self, sequence: int, *, checkpoints_succeed: bool | None = None) -> None:
        """Pushes up to this sequence are durable. `checkpoints_succeed` is None where that is unknown."""
        self._durable = max(self._durable, sequence)
        self._checkpoints_succeed = self._checkpoints_succeed if checkpoints_succeed is None else checkpoints_succeed
        self._drop_durable()

    def lost_after(self, settled_through: int) -> list[tuple[Push, Sequence[Buffer]]]:
        """
        The pushes to send again to a new epoch of the server, whose ledger is complete up to `settled_through`.

        Pushes without a reply are not among them: they are sent in any case. Durable pushes may be among
        them: a standby that was not in sync may lack some.
        """
        lost = []
        self._durable = min(self._durable, settled_through)
        for sequence, kept in self._kept.items():
            kept.settled = kept.replied and sequence <= settled_through
            if kept.replied and not kept.settled:
                # The trainer has had the weights of the first reply.
                lost.append((msgspec.structs.replace(kept.message, weight_codec=None), kept.vector))
        return lost

    def clear(self) -> None:
        """No push will be sent any more."""
        self._kept.clear()
        self._bytes = 0

    def _drop_durable(self) -> None:
        while (oldest := self.oldest) is not None and oldest <= self._durable and self._kept[oldest].replied:
            self._drop(oldest)

    def _drop_settled_for(self, size: int) -> None:
        """Drop the oldest pushes until `size` fits, as far as the server has them at least in memory."""
        while (
            self._bytes + size > self._budget_bytes
            and (oldest := self.oldest) is not None
            and self._kept[oldest].settled
        ):
            self._drop(oldest)

    def _drop(self, sequence: int) -> None:
        kept = self._kept.pop(sequence)
        if sequence <= self._admitted:
            self._bytes -= kept.size
