"""
Which life of which run a server is: the run's id, and the epoch.

Epochs of a run are in order, without a clock. A server that is resumed counts up the middle part of the epoch, a
standby that takes over the upper part: a takeover is above every resume of the server that it replaces. The lowest part
is drawn, so that two servers that took the same step are not in the same epoch. Everything stays below 2^53, because a
double holds every integer up to there. Who draws, and keeps the newest epoch on disk, is the shell.

All servers of a run have a secret, with which each proves its epoch: nobody else can claim that the run is served in a
later one. Workers learn the proof of an epoch from the server that serves in it, and show it to others.
"""

import hashlib
import hmac
import re

import msgspec

RUN_ID_DIGITS = 16
RUN_ID = re.compile(f"[0-9a-f]{{{RUN_ID_DIGITS}}}")
DRAWN = 2**24  # the lowest part of an epoch is below this
_RESUMED = DRAWN
_TAKEN_OVER = 2**40


class Lineage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One life of a server of one run. `draw` is a random number below DRAWN."""

    run_id: str
    secret: str  # of the servers of this run
    epoch: int
    continues: tuple[str, ...] = ()  # ids of runs that were lost: their workers may bring the weights that they have
    replaced_by: str | None = None  # HOST:PORT of another server, in this epoch, or "" where only the epoch is known

    @classmethod
    def begun(cls, run_id: str, *, secret: str, draw: int, continues: tuple[str, ...] = ()) -> "Lineage":
        """The first life of a new run."""
        return cls(run_id=run_id, secret=secret, epoch=_RESUMED + draw, continues=continues)

    def resumed(self, *, draw: int) -> "Lineage":
        """The next life of the same server."""
        return self._in_epoch((self.epoch // _RESUMED + 1) * _RESUMED + draw)

    def taken_over(self, *, draw: int) -> "Lineage":
        """The first life of the server that replaces this one."""
        return self._in_epoch((self.epoch // _TAKEN_OVER + 1) * _TAKEN_OVER + draw)

    def replaced(self, by: str, *, epoch: int) -> "Lineage":
        """What is left of this server when the run is served in this epoch by another one."""
        return msgspec.structs.replace(self, epoch=max(epoch, self.epoch), replaced_by=by)

    @property
    def proof(self) -> str:
        """What shows that a server of this run serves in this epoch."""
        return self._proof_of(self.epoch)

    def proves(self, epoch: int, proof: str) -> bool:
        """Whether a server of this run has said that it serves in this epoch."""
        return hmac.compare_digest(self._proof_of(epoch), proof)

    def is_of(self, run_id: str) -> bool:
        """Whether a worker that was in this run belongs here; "" is a worker that was in none."""
        return run_id in ("", self.run_id, *self.continues)

    def _proof_of(self, epoch: int) -> str:
        told = f"{self.run_id} is served in epoch {epoch}"
        return hmac.new(self.secret.encode(), told.encode(), hashlib.sha256).hexdigest()[:32]

    def _in_epoch(self, epoch: int) -> "Lineage":
        return msgspec.structs.replace(self, epoch=epoch, replaced_by=None)
