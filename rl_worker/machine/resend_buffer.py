"""
Pushes that the server could still forget: they are kept until a checkpoint holds them, and sent again to a server that
came back without them.

A push is kept from the call on. It is *answered* when its first reply is here, *settled* when the server that lives now
has looked at it, and *durable* when it is inside a completed checkpoint; then it is let go. What is kept has a budget
of bytes: the push that does not fit waits, unless the server says that its checkpoints fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from common.protocol.messages import Push
from common.protocol.tensors import vector_bytes
from common.protocol.wire import Buffer

OVERHEAD_BYTES = 1024  # of a kept push beside its vector: objects, and their place in tables


@dataclass
class _Kept:
    """A push, and how far it got. Settled implies answered."""

    message: Push
    vector: Sequence[Buffer]
    size: int
    answered: bool = False
    settled: bool = False  # by the life of the server that is known now


class ResendBuffer:
    """
    One worker's pushes that are not durable, by sequence. With a budget of 0 bytes each is let go when it is answered.

    Invariants: an unanswered push is always kept; the bytes of those that may be sent are within the budget, or are
    those of a single push.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._kept: dict[int, _Kept] = {}  # by sequence, the oldest first
        self._bytes = 0  # of those that were admitted
        self._admitted = 0  # the highest sequence that may be sent
        self._durable = 0
        self._is_full = False
        self._saving = True

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def oldest(self) -> int | None:
        """The lowest sequence that may still be sent; None when every push is let go."""
        return next(iter(self._kept), None)

    @property
    def should_be_saved(self) -> bool:
        """Whether the budget is half used: the server should write a checkpoint early."""
        return self._is_full or self._bytes > self._budget_bytes / 2 > 0

    def keep(self, push: Push, vector: Sequence[Buffer]) -> None:
        """A new push; its vector must not change any more."""
        self._kept[push.sequence] = _Kept(push, vector, vector_bytes(vector) + OVERHEAD_BYTES)

    def admit(self, sequence: int) -> bool:
        """Whether there is room to send this push: the oldest of those that were not admitted before."""
        if sequence <= self._admitted:
            return True
        size = self._kept[sequence].size
        if not self._saving:
            self._let_go_for(size)
        self._is_full = 0 < self._budget_bytes < self._bytes + size and self._bytes > 0
        if self._is_full:
            return False
        self._admitted = sequence
        self._bytes += size
        return True

    def settled(self, sequence: int) -> bool:
        """The server has looked at this push. Returns whether this is its first answer."""
        kept = self._kept.get(sequence)
        if kept is None:
            return False
        first, kept.answered, kept.settled = not kept.answered, True, True
        if self._budget_bytes == 0:
            self._let_go(sequence)
        self._let_go_durable()
        return first

    def refused(self, sequence: int) -> bool:
        """The server will never take this push. Returns whether somebody waits to hear so."""
        kept = self._kept.get(sequence)
        if kept is None:
            return False
        self._let_go(sequence)
        return not kept.answered

    def saved(self, durable: int, *, saving: bool | None = None) -> None:
        """The server says up to where pushes are durable, and perhaps whether its checkpoints succeed."""
        self._durable = max(self._durable, durable)
        self._saving = self._saving if saving is None else saving
        self._let_go_durable()

    def lacking(self, settled_through: int) -> list[tuple[Push, Sequence[Buffer]]]:
        """
        Another life of the server has begun, with a ledger that is complete up to here: what it has to be sent again.

        Unanswered pushes are not among them: they are on their way in any case.
        """
        again = []
        for sequence, kept in self._kept.items():
            kept.settled = kept.answered and sequence <= settled_through
            if kept.answered and not kept.settled:
                # Its trainer has had the weights.
                again.append((msgspec.structs.replace(kept.message, weight_codec=None), kept.vector))
        return again

    def forget_answered(self) -> None:
        """The server lost the run, and was given weights that answered pushes are part of."""
        for sequence in [sequence for sequence, kept in self._kept.items() if kept.answered]:
            self._let_go(sequence)

    def clear(self) -> None:
        """Nothing will be sent any more."""
        self._kept.clear()
        self._bytes = 0

    def _let_go_durable(self) -> None:
        while (oldest := self.oldest) is not None and oldest <= self._durable and self._kept[oldest].answered:
            self._let_go(oldest)

    def _let_go_for(self, size: int) -> None:
        """Make room from the oldest on, as far as the server has them at least in memory."""
        while (
            self._bytes + size > self._budget_bytes
            and (oldest := self.oldest) is not None
            and self._kept[oldest].settled
        ):
            self._let_go(oldest)

    def _let_go(self, sequence: int) -> None:
        kept = self._kept.pop(sequence)
        if sequence <= self._admitted:
            self._bytes -= kept.size
