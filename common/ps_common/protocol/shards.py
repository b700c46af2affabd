"""
Shards: the servers of one run when each holds one contiguous range of the flat vector.

This file decides where the vector is cut, and checks what a user types about shards. All shards and workers cut alike,
so no range travels.
"""

import re
from collections.abc import Sequence

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.addresses import check_address
from ps_common.protocol.names import Text

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
