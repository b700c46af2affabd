"""
The log of one run in one epoch: every change, in order. Its position is the one number for what a server has of a run.

A checkpoint is the run at a position, and the changes up to the newest one on disk are durable. A standby is a reader:
it begins with the whole run at a position, reads each entry after that, and acknowledges a position. Another shard than
the first needs no log: the settings that it takes from shard 1 are small, and shard 1 sends all of them each time.
"""

from collections.abc import Sequence

from msgspec import Struct

from ps_common.protocol.messages import UpdateMessage
from ps_common.protocol.wire import Buffer


class Entry(Struct, frozen=True):
    """One change. The position is that of the run after it."""

    position: int
    worker_id: str
    message: UpdateMessage
    vector: Sequence[Buffer] = ()
    more_in_group: bool = False  # the next push is settled with this one


class ChangeLog:
    """The position of a run, and the entries that its reader has not taken yet."""

    def __init__(self) -> None:
        self.position = 1  # of the run that the log begins with; 0 is before that
        self._is_read = False
        self._untaken: list[Entry] = []

    def append(
        self,
        message: UpdateMessage,
        *,
        worker_id: str = "",
        vector: Sequence[Buffer] = (),
        more_in_group: bool = False,
    ) -> None:
        """The run has changed by this message, whose vector does not change any more."""
        self.position += 1
        if self._is_read:
            self._untaken.append(Entry(self.position, worker_id, message, vector, more_in_group))

    def skip(self) -> None:
        """The run has changed in a way that no entry describes: a reader needs the whole run again."""
        self.position += 1

    def take(self, *, is_read: bool) -> list[Entry]:
        """The entries since the last call. `is_read`: whether there is a reader of those that follow."""
        taken, self._untaken, self._is_read = self._untaken, [], is_read
        return taken
