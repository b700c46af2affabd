"""
The lineage of a server: the run id, the shard, and the epoch, which orders the lives of the run's servers without a
clock.

Shards are the servers of one run when each holds one contiguous range of the flat vector. All shards and workers cut it
alike, so no range travels.

A resumed server increments the middle part of the epoch, a promoted standby the upper part: so a promotion is
above every resume of the server that it replaces. The lowest part is random, so that two servers that took the same
step are in different epochs. Epochs stay below 2^53, where a double still holds every integer. The shell draws the
random numbers and keeps the newest epoch on disk.

All servers of a run share a secret, with which each proves its epoch: nobody else can claim that the run is served in a
later one. Workers learn the proof of an epoch from its server and show it to other servers.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Annotated

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.names import Count, Text, check_address

MOST_SHARDS = 64
PLACE = re.compile(r"([1-9][0-9]?)/([1-9][0-9]?)")
ALIGNMENT = 256  # elements: a block of int8; and no kernel computes an element otherwise than in the whole vector


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """
    The place of one server among the shards of its run. `addresses` are those of all shards, in order, each as
    `rl-worker --server` takes it: HOST:PORT, or HOST:PORT,HOST:PORT with a standby.
    """

    number: int = 1  # from 1 on
    addresses: tuple[Text, ...] = ()  # empty: one server holds the whole vector

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of <= MOST_SHARDS:
            raise ValueError(f"there is no {self}")

    @property
    def of(self) -> int:
        """The number of shards."""
        return len(self.addresses) or 1

    def __str__(self) -> str:
        return f"shard {self.number}/{self.of}"


WHOLE = Shard()  # of the server of a run without shards


def range_of(shard: int, shards: int, weights: int) -> tuple[int, int]:
    """
    The first weight of this shard, and the one after its last. The last shard also holds all statistics.

    Cuts are at multiples of ALIGNMENT, unless the vector is too short for that.
    """
    unit = ALIGNMENT if weights >= ALIGNMENT * shards else 1
    first, end = (weights * number // shards // unit * unit for number in (shard - 1, shard))
    return first, weights if shard == shards else end


def shard_of(place: str | None, addresses: Sequence[str]) -> Shard | None:
    """The shard of the flags --shard and --shards; None without them. Raises SettingsError."""
    if place is None and not addresses:
        return None
    match = PLACE.fullmatch(place or "")
    if match is None or not int(match[1]) <= int(match[2]) <= MOST_SHARDS:
        given = "" if place is None else f" {place}"
        raise SettingsError(f"--shard{given}: must be K/N, for example 2/4; N is at most {MOST_SHARDS}")
    number, of = int(match[1]), int(match[2])
    if len(addresses) != (of if of > 1 else 0):
        wanted = f"the addresses of all {of} shards in order" if of > 1 else "no address: one shard is the whole run"
        raise SettingsError(f"--shards: --shard {place} takes {wanted}, and {len(addresses)} are given")
    for address in addresses:
        for part in address.split(","):
            check_address("--shards", part)
    if len(set(addresses)) < len(addresses):
        raise SettingsError(f"--shards {' '.join(addresses)}: two shards have the same address")
    return Shard(number=number, addresses=tuple(addresses))


RUN_ID_DIGITS = 16
RUN_ID = re.compile(f"[0-9a-f]{{{RUN_ID_DIGITS}}}")
DRAWN = 2**24  # the random part of an epoch is below this
_RESUMED = DRAWN
_PROMOTED = 2**40
RunId = Annotated[str, msgspec.Meta(pattern=rf"^{RUN_ID.pattern}\Z")]


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a server of one run. `draw` is a random number below DRAWN."""

    run_id: RunId
    secret: Annotated[Text, msgspec.Meta(min_length=1)]  # shared by the servers of this run
    epoch: Count
    shard: Shard = WHOLE  # the place of this server among the servers of the run
    replaced_by: Text | None = None  # HOST:PORT of the server of this epoch; "" where only the epoch is known

    @classmethod
    def begun(cls, run_id: str, *, secret: str, draw: int, shard: Shard = WHOLE) -> "Lineage":
        """The first epoch of a new run."""
        return cls(run_id=run_id, secret=secret, epoch=_RESUMED + draw, shard=shard)

    def resumed(self, *, draw: int) -> "Lineage":
        """The next epoch of the same server."""
        return self._in_epoch((self.epoch // _RESUMED + 1) * _RESUMED + draw)

    def promoted(self, *, draw: int) -> "Lineage":
        """The epoch of the server that is promoted in place of this one."""
        return self._in_epoch((self.epoch // _PROMOTED + 1) * _PROMOTED + draw)

    def replaced(self, by: str, *, epoch: int) -> "Lineage":
        """The lineage of this server when another one serves the run in a later epoch."""
        return msgspec.structs.replace(self, epoch=max(epoch, self.epoch), replaced_by=by)

    def was_resumed(self, epoch: int) -> bool:
        """Whether that later epoch is of this server, started again, and no standby was promoted in between."""
        return epoch // _PROMOTED == self.epoch // _PROMOTED and epoch // DRAWN > self.life

    @property
    def life(self) -> int:
        """The epoch without its random part: two servers that took the same step are in the same life."""
        return self.epoch // DRAWN

    @property
    def proof(self) -> str:
        """The proof that a server of this run serves it in this epoch."""
        return self._proof_of(self.epoch)

    def proves(self, epoch: int, proof: str) -> bool:
        """Whether `proof` is that of a server of this run for `epoch`."""
        return hmac.compare_digest(self._proof_of(epoch), proof)

    def is_of(self, run_id: str) -> bool:
        """Whether a worker of run `run_id` may join; "" is a worker that was in no run."""
        return run_id in ("", self.run_id)

    def _proof_of(self, epoch: int) -> str:
        claim = f"{self.run_id} is served in epoch {epoch}"
        return hmac.new(self.secret.encode(), claim.encode(), hashlib.sha256).hexdigest()[:32]

    def _in_epoch(self, epoch: int) -> "Lineage":
        return msgspec.structs.replace(self, epoch=epoch, replaced_by=None)
